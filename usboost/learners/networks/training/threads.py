"""Keeping the thread pools of torch and BLAS out of each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread_each(blas: bool = False) -> Iterator[None]:
    """One OpenMP thread for what this thread does (torch's element-wise operations); BLAS on request.

    Two pools of threads that take turns every few microseconds wait for each other most of the time,
    and a pool inside each of several workers asks for more cores than there are. The limit of OpenMP
    holds for the calling thread, that of BLAS for the process.
    """
    with ExitStack() as stack:
        stack.enter_context(_pools().limit(limits=1, user_api="openmp"))
        if blas:
            stack.enter_context(_pools().limit(limits=1, user_api="blas"))
        yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()
