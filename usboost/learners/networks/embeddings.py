"""The cache of embeddings: what frozen networks make of images, computed once for each image and weights.

A folder for each network (by the digest of all that decides what it gives) holds shards of some hundred
images: the images' digests and their values. A process that is killed loses one shard at most; two
that compute the same write the same files.
"""

import hashlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from usboost.errors import UsboostError, warn
from usboost.files import write_atomically
from usboost.files.arrays import zeros_on_disk
from usboost.learners.networks.image_network import FrozenNetwork

SHARD = 512
"""Images in a shard."""

LEAST = 16
"""Fewer new images than this are not worth a file: they are quickly embedded again."""

IN_MEMORY = 1 << 30
"""Bytes of values that are cached in memory; more lie in a temporary file that is mapped."""

_NOTIFIED = 64  # images after which `progress` is called
_RECENT = 1 << 28  # bytes of the last results, cached
_LARGEST_HALF = 60_000.0  # a float16 holds no more

Progress = Callable[[int, int], None]

T = TypeVar("T", bound=Any)


@contextmanager
def progress(callback: Progress) -> Iterator[None]:
    """Call `callback(done, total)` within it as images are embedded; those that are on disk do not count."""
    _listening.append(callback)
    try:
        yield
    finally:
        _listening.remove(callback)


@contextmanager
def _within(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def without_writing() -> AbstractContextManager[None]:
    """Write nothing to disk in the block, for images that are made once; the cache is still read."""
    return _within(_writing, False)


def shared_in_memory() -> AbstractContextManager[None]:
    """Embed the same images once within it for several models, also without a folder."""
    return _within(_holding, True)


def cache_folder(chosen: str | bool | None) -> Path | None:
    """Return the cache's folder: the one chosen, $USBOOST_CACHE, or the user's; None for "off"."""
    if chosen is False or chosen == "off":
        return None
    if isinstance(chosen, str):
        return Path(chosen)
    own = os.environ.get("USBOOST_CACHE")
    if own == "off":
        return None
    if own:
        return Path(own) / "embeddings"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return user / "usboost" / "embeddings"


def values_of(
    view: Any, compute: Callable[[], FrozenNetwork], folder: Path | None, network: str = ""
) -> np.ndarray:
    """Return what a frozen network gives for each image, computed if it is not in the folder.

    float16 (n, …), or float32 where a value is beyond float16's range; zeros where `absent` marks a row.
    Mapped from a temporary file if it is large. It may be shared: do not write to it.

    Parameters
    ----------
    compute : makes the network, if it is needed at all.
    folder : of this network and size alone; None keeps nothing.
    network : what tells it from others, for `shared_in_memory`.
    """
    absent = getattr(view, "absent", None)
    there = np.arange(len(view)) if absent is None else np.flatnonzero(~np.asarray(absent))
    if len(there) == 0:
        return np.zeros((len(view), *compute().shape(view)), dtype=np.float16)
    keys = view.digests()[there]
    cache_key = (str(folder), network, len(view), keys.tobytes(), there.tobytes())
    remembered = folder is not None or (_holding.get() and bool(network))
    if remembered and (recent := _recent.get(cache_key)) is not None:
        return recent[0]
    unique, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    store = _Store(folder)
    while True:
        where = store.find(unique)
        missing = np.flatnonzero(where < 0)
        if len(missing):
            missing = missing[np.argsort(first[missing])]  # in the order in which they lie
            _compute(view, there[first[missing]], unique[missing], compute(), store)
            where = store.find(unique)
        out = store.gathered(where[inverse.reshape(-1)], there, len(view))
        if out is not None:  # else a shard went away meanwhile
            break
    if remembered:
        _recent.put(cache_key, (out,))
    return out


def _compute(view: Any, rows: np.ndarray, keys: np.ndarray, network: FrozenNetwork, store: "_Store") -> None:
    """Put the values of the rows in the store, a shard at a time."""
    for start in range(0, len(rows), SHARD):
        shard, parts = slice(start, start + SHARD), []
        for begin in range(start, min(start + SHARD, len(rows)), _NOTIFIED):
            part = slice(begin, min(begin + _NOTIFIED, start + SHARD))
            parts.append(network(view, rows[part]))
            for callback in _listening:
                callback(min(part.stop, len(rows)), len(rows))
        values = np.concatenate(parts)
        half = np.abs(values).max(initial=0) < _LARGEST_HALF
        write = len(rows) >= LEAST and _writing.get()
        store.put(keys[shard], values.astype(np.float16 if half else np.float32), write)


class _Store:
    """Values by image: in the shards of a folder, and in memory where there is no file for them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._keys: list[np.ndarray] = []
        self._sources: list[Path | np.ndarray] = []
        if folder is not None and folder.is_dir():
            for path in sorted(folder.glob("*.safetensors")):
                if (keys := _keys.get(path)) is None and (shard := _read(path)) is not None:
                    keys = _keys[path] = shard[0]
                if keys is not None:
                    self._keys.append(keys)
                    self._sources.append(path)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Find images by keys, uint8 (k, 16): positions, int64 (k,), -1 for those that are not there."""
        where = np.full(len(keys), -1, dtype=np.int64)
        if self._keys:
            known = np.concatenate(self._keys)
            # compared by their first eight bytes, then whole
            heads, wanted = (np.ascontiguousarray(own[:, :8]).view(np.uint64)[:, 0] for own in (known, keys))
            order = np.argsort(heads, kind="stable")
            at = order[np.minimum(np.searchsorted(heads, wanted, sorter=order), len(order) - 1)]
            equal = (known[at] == keys).all(axis=1)
            where[equal] = at[equal]
        return where

    def put(self, keys: np.ndarray, values: np.ndarray, write: bool) -> None:
        """Keep values by image: on disk, else in memory."""
        path = _write(self._folder, keys, values) if write and self._folder is not None else None
        self._keys.append(keys)
        self._sources.append(values if path is None else path)

    def gathered(self, where: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray | None:
        """Gather (n, …): the values at `where` in the given rows, else zeros; None if a shard is gone."""
        starts = np.cumsum([0, *map(len, self._keys)])
        out: np.ndarray | None = None
        for k, source in enumerate(self._sources):
            mine = np.flatnonzero((starts[k] <= where) & (where < starts[k + 1]))
            if not len(mine):
                continue
            values: np.ndarray | None = None
            if not isinstance(source, Path):
                values = source
            elif (shard := _shards.get(source) or _read(source)) is not None:
                values = shard[1]
            else:
                _keys.pop(source, None)
            if values is None or (out is not None and values.shape[1:] != out.shape[1:]):
                del self._keys[k], self._sources[k]
                return None
            if out is None:
                shape = (n, *values.shape[1:])
                if int(np.prod(shape)) * values.dtype.itemsize <= IN_MEMORY:
                    out = np.zeros(shape, dtype=values.dtype)
                else:  # where they are many, in a file without a name
                    out = zeros_on_disk(shape, values.dtype)
            elif values.dtype == np.float32 and out.dtype == np.float16:
                out = out.astype(np.float32)
            out[rows[mine]] = values[where[mine] - starts[k]]
        return out


class Recent(Generic[T]):
    """The last results, tuples of what has `nbytes`, up to so many bytes; the oldest goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached: OrderedDict[Any, tuple[T, ...]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> tuple[T, ...] | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def put(self, key: Any, parts: tuple[T, ...]) -> None:
        size = sum(part.nbytes for part in parts)
        with self._lock:
            self._cached.pop(key, None)
            if size <= self._limit:
                self._cached[key] = parts
            while sum(each.nbytes for cached in self._cached.values() for each in cached) > self._limit:
                self._cached.popitem(last=False)


_recent: Recent[np.ndarray] = Recent(_RECENT)
_shards: Recent[np.ndarray] = Recent(_RECENT)
_keys: dict[Path, np.ndarray] = {}  # of the shards that were read: 16 bytes an image
_listening: list[Progress] = []
_writing: ContextVar[bool] = ContextVar("writing", default=True)
_holding: ContextVar[bool] = ContextVar("holding", default=False)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Read keys and values of a shard; return None if it is damaged or gone, and remove it."""
    try:
        shard = load_file(path)
        keys, values, check = shard["keys"], shard["values"], shard["check"]
        right = (
            keys.dtype == np.uint8
            and keys.shape == (len(values), 16)
            and values.dtype in (np.float16, np.float32)
            and int(check[0]) == _checksum(keys, values)
        )
    except FileNotFoundError:
        return None
    # numpy refuses some headers that safetensors lets pass
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, IndexError):
        right = False
    if not right:
        path.unlink(missing_ok=True)
        return None
    _shards.put(path, (keys, values))
    return keys, values


def _write(folder: Path, keys: np.ndarray, values: np.ndarray) -> Path | None:
    """Write a shard, named by what it holds; None, with a warning, where nothing can be written."""
    check = np.asarray([_checksum(keys, values)], dtype=np.int64)
    name = hashlib.blake2b(keys.tobytes(), digest_size=16).hexdigest()
    path = folder / f"{name}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save({"keys": keys, "values": values, "check": check}))
    except (OSError, UsboostError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        warn(
            f"embeddings cannot be kept in {folder} ({reason}) and are computed anew each time; "
            "set USBOOST_CACHE to a folder or to off"
        )
        return None
    _keys[path] = keys
    _shards.put(path, (keys, values))
    return path


def _checksum(keys: np.ndarray, values: np.ndarray) -> int:
    return zlib.crc32(values.tobytes(), zlib.crc32(keys.tobytes()))
