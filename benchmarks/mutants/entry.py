"""What a break is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Break:
    """A place of the code, what is to stand there instead, and who should notice.

    Attributes
    ----------
    name : what is wrong then.
    file : relative to the root.
    old, new : text; the old one is in the file once.
    tests : files or node ids, in the order in which they are run.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
