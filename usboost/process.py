"""Settings of the process that another package may have changed: usboost has its own, and gives them back.

Also how many threads a fit has, and the processor."""

import decimal
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

_inside: ContextVar[bool] = ContextVar("inside", default=False)  # of this thread, or task
_LOCK = threading.Lock()
_blocks = 0  # of all threads
_before: list[tuple[Callable[[Any], object], Any]] = []  # how to set what the process had, and to what


@contextmanager
def own_settings() -> Iterator[None]:
    """Run a block with the settings that fits and predictions are made for, whatever the process has.

    These are torch's default dtype (float32) and device (the CPU), its gradients (on), autocast and inference
    mode (off), a GPU's float32 (all bits), what NumPy does about overflow (it warns) and NaN (nothing), how
    it prints, the context of decimals, and that Pillow refuses files that are cut short. torch is not loaded
    for it. What is one for all threads is given back when the last of overlapping blocks ends.
    """
    global _blocks
    if _inside.get():
        yield
        return
    with ExitStack() as stack:
        stack.callback(_inside.reset, _inside.set(True))
        # invalid: OpenBLAS leaves that flag, now and then, after a product of finite numbers
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="ignore"))
        stack.enter_context(np.printoptions(legacy=False))
        stack.enter_context(decimal.localcontext(decimal.Context()))
        with _LOCK:
            _blocks += 1
            stack.callback(_give_back)
            if "PIL.ImageFile" in sys.modules:
                from PIL import ImageFile

                if ImageFile.LOAD_TRUNCATED_IMAGES:
                    _before.append((lambda value: setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", value), True))
                    ImageFile.LOAD_TRUNCATED_IMAGES = False
            if "torch" in sys.modules:
                import torch

                if (dtype := torch.get_default_dtype()) != torch.float32:
                    _before.append((torch.set_default_dtype, dtype))
                    torch.set_default_dtype(torch.float32)
                convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
                for products in (convolutions, torch.backends.cuda.matmul):
                    if (precision := products.fp32_precision) != "ieee":
                        _before.append((partial(setattr, products, "fp32_precision"), precision))
                        products.fp32_precision = "ieee"
        if "torch" in sys.modules:
            import torch  # waits where another thread is loading it

            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            if torch.get_default_device() != torch.device("cpu"):
                stack.enter_context(torch.device("cpu"))
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _give_back() -> None:
    global _blocks
    with _LOCK:
        _blocks -= 1
        while not _blocks and _before:
            set_, value = _before.pop()
            set_(value)


def with_own_settings(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with `own_settings` around it, or around each step of an iterator that it gives."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        with own_settings():
            result = function(*args, **kwargs)
        return _stepwise(result) if isinstance(result, Iterator) else result  # type: ignore[return-value]

    return guarded


def _stepwise(steps: Iterator[Any]) -> Iterator[Any]:
    while True:
        with own_settings():
            try:
                step = next(steps)
            except StopIteration:
                return
        yield step


class OwnSettings:
    """Base of classes whose public methods run within `own_settings`, also those of subclasses."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, with_own_settings(value))


def thread_share(workers: int) -> int:
    """Return the threads of each of `workers` fits side by side; OMP_NUM_THREADS where a user has set it."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else max(1, len(os.sched_getaffinity(0)) // workers)


def limit_threads(threads: int) -> None:
    """Have OpenMP and torch use this many threads from now on, and BLAS one, as every fit has it.

    It is for the whole process, in which fits may run side by side: a fit that set the number back would
    change that of the others, and with it the order in which their networks sum.
    """
    import torch
    from threadpoolctl import get_cached_controller

    get_cached_controller().limit(limits={"openmp": threads, "blas": 1})
    torch.set_num_threads(threads)


def processor() -> str:
    """Name the processor and the instructions that torch uses: ``AMD EPYC, AVX512``, say."""
    import torch

    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return f"{named[1] if named else platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
