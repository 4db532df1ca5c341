"""Checkpoints: every round of a fit on disk as it happens, so that a killed process costs one round.

A checkpoint is a folder: ``identity.json`` (what decides the fit's result), a file for every round
(its weak learners, steps, metrics and seconds) and ``state.safetensors``, the running scores or a
network's weights and optimizer as they were after some round. Files are put in place whole, so
whatever a process was doing when it died, what is there is right. Random numbers come from the
seed and the round's index alone; nothing else needs keeping.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from usboost.boosting.code import NOT_DECIDING, code_digest
from usboost.boosting.rounds import Round, describe_stage, stage_of
from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.files.arrays import Arrays
from usboost.learners.base import LEARNERS, check_writable
from usboost.shards.collective import world

STATE_SECONDS = 5.0
"""Scores are written at most this often; rounds after them are predicted again, which is quick."""


class Checkpoint:
    """A folder to which a fit writes every round, and from which it resumes.

    Parameters
    ----------
    folder : where to keep it; made when the first round ends
    identity : mapping, optional
        What decides the fit's result, as JSON; by default a digest of parameters, data and code is
        made when the fit begins. A folder with another identity is refused.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Checkpoint, Table, TreeLearner, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> def model():
    ...     return TwoWeakLearnerClassifier({"S": TreeLearner()}, n_rounds=5, checkpoint=Checkpoint("rounds"))
    >>> first = model().fit(views, y)
    >>> again = model().fit(views, y)  # reads the rounds; after a kill it goes on with the next one
    >>> bool((first.predict_proba(views) == again.predict_proba(views)).all())
    True
    """

    def __init__(self, folder: Path | str, identity: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.identity = identity
        self._written = -float("inf")

    def of_another_fit(self) -> bool:
        """Return whether the folder holds a fit with another identity than the one given."""
        identity = self._identity()
        return identity is not None and identity != json.loads(json.dumps(self.identity))

    def _identity(self) -> Any:
        """Read the identity of the fit that the folder holds; None if it holds none."""
        path = self.folder / "identity.json"
        try:
            stored = json.loads(path.read_text()) if path.exists() else None
            if not isinstance(stored, dict | None) or (stored is None and self.began()):
                raise ValueError("it does not say of which fit the folder's rounds are")
            return stored
        except (OSError, ValueError) as error:
            raise UsboostError(f"{path} cannot be read: {error}; remove its folder to begin anew") from error

    def begin(self, identity: Mapping[str, Any], learners: Mapping[str, Any] | None = None) -> None:
        """Take the folder for a fit with this identity (unless one was given), and weak learners by name.

        Raises `UsboostError` if what a learner fits could not be written, or the folder holds a fit with
        other parameters, data or code; it is left as it is.
        """
        for name, learner in (learners or {}).items():
            check_writable(name, learner)
        if world().number:
            return
        # as it is when it is read back: tuples are lists
        mine = json.loads(json.dumps(self.identity or identity))
        stored = self._identity()
        if stored is None:
            write_atomically(self.folder / "identity.json", json.dumps(mine, indent=1).encode())
        elif stored != mine:
            others = sorted(key for key in {*mine, *stored} if mine.get(key) != stored.get(key))
            raise UsboostError(
                f"{self.folder} is the checkpoint of another fit ({', '.join(others)} differ); remove "
                "it, or choose another folder"
            )

    def began(self) -> bool:
        """Return whether any round was written."""
        return any(self.folder.glob("round-*.safetensors"))

    def rounds(self) -> list[Round]:
        """Read the rounds that were written, in order."""
        # by their number: where one between them is gone it is missed, and no gap is taken for the end
        count = world().sum(0 if world().number else sum(1 for _ in self.folder.glob("round-*.safetensors")))
        return [self._read_round(index) for index in range(1, 1 + int(count))]

    def round_at(self, index: int) -> Round | None:
        """Read round `index`, from 1, of a fit that another process makes; None if it is not there."""
        return self._read_round(index) if self._file(index).exists() else None

    def keep(self, round_: Round) -> None:
        """Write a round, where shard 0 is; it is there when this returns in any shard.

        Raises `UsboostError` if it cannot be written, as on a full disk; what was written before stays.
        """
        if not world().number:
            arrays: Arrays = {}
            document: dict[str, Any] = {
                "index": round_.index,
                "metrics": round_.metrics,
                "seconds": round_.seconds,
                **({"rows": round_.rows} if round_.rows else {}),
            }
            if round_.stage is not None:
                arrays, document["stage"] = describe_stage(round_.stage)
            self._write(self._file(round_.index), arrays, document)
        world().broadcast(b"")

    def state_is_due(self) -> bool:
        """Return whether the scores were written long enough ago to be written again."""
        # of several shards none has all of them
        return world().count == 1 and time.monotonic() - self._written >= STATE_SECONDS

    def keep_state(self, index: int, arrays: Arrays, more: Mapping[str, Any] | None = None) -> None:
        """Replace the stored state by the one after round `index`."""
        self._write(self.folder / "state.safetensors", arrays, {"index": index, "more": more or {}})
        self._written = time.monotonic()

    def state(self) -> tuple[int, Arrays, dict[str, Any]] | None:
        """Read round, arrays and what else is stored with them; None before the first."""
        path = self.folder / "state.safetensors"
        if world().count > 1 or not path.exists():
            return None
        arrays, document = _read(path)
        try:
            return int(document["index"]), arrays, dict(document["more"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error

    def clear(self) -> None:
        """Remove the folder: the fit is done and its result elsewhere."""
        if not world().number:
            # backwards: what a kill leaves is a shorter fit
            for path in sorted(self.folder.glob("*.safetensors"), reverse=True):
                path.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, index: int) -> Path:
        return self.folder / f"round-{index:06d}.safetensors"

    def _read_round(self, index: int) -> Round:
        path = self._file(index)
        arrays, document = _read(path)
        try:
            entries = [each for each in (document.get("stage") or {}).values() if isinstance(each, Mapping)]
        except AttributeError as error:
            raise _damaged(path, error) from error
        for kind in (each.get("kind") for each in entries):
            # no damage: whoever made the file knew it
            if isinstance(kind, str) and kind not in LEARNERS:
                raise UsboostError(
                    f"{path} holds a weak learner of kind {kind!r}, which is not registered here; import the "
                    "module that registers it, and run the same command again"
                )
        try:
            stage = stage_of(arrays, document["stage"]) if "stage" in document else None
            metrics, seconds = dict(document["metrics"]), dict(document["seconds"])
            return Round(int(document["index"]), stage, metrics, seconds, tuple(document.get("rows", ())))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise _damaged(path, error) from error

    @staticmethod
    def _write(path: Path, arrays: Arrays, document: Mapping[str, Any]) -> None:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_atomically(path, save(contiguous, metadata={"document": json.dumps(document)}))


def _damaged(path: Path, error: Exception) -> UsboostError:
    return UsboostError(f"{path} is damaged ({type(error).__name__}); remove its folder to start again")


def _read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    try:
        content = world().broadcast(b"" if world().number else path.read_bytes())
        arrays = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return arrays, json.loads(header["__metadata__"]["document"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def identity_of(model: Any, samples: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Return what decides a fit's result: digests of the model's parameters, of the data, and of the code.

    Code is that of the model's parts and of the views; of what has read and encoded the data, their digest
    tells enough. Samples are (views, y), or (views, y, weights), of training and, if any, validation.
    """
    data, kinds = hashlib.sha256(), set()
    for views, *columns in samples:
        for name in views.names:
            kinds.add(type(views[name]).__module__)
            data.update(f"{name} {len(views)}".encode())
            _digest(views[name], data)
        for column in columns:
            _digest(np.asarray(column), data)
    parameters = json.dumps(described(model), sort_keys=True)
    every = world().gather(np.frombuffer(data.digest(), dtype=np.uint8))
    if len(every) > 1:  # of all shards' data
        data = hashlib.sha256(b"".join(bytes(each) for each in every))
    return {
        "parameters": hashlib.sha256(parameters.encode()).hexdigest(),
        "data": data.hexdigest(),
        "code": code_digest(model, *kinds),
    }


def described(part: Any) -> Any:
    """Describe an estimator's class and parameters, and those of estimators inside it, as JSON.

    Callbacks and checkpoints are left out: they do not change what is fitted.
    """
    if hasattr(part, "get_params"):
        inner = part.get_params(deep=False).items()
        deciding = {key: described(v) for key, v in inner if key not in NOT_DECIDING}
        return {type(part).__name__: deciding}
    if isinstance(part, Mapping):
        return {str(key): described(value) for key, value in part.items()}
    if is_dataclass(part) and not isinstance(part, type):
        digest = hashlib.sha256()
        _digest(part, digest)
        return {type(part).__name__: digest.hexdigest()}
    return repr(tuple(part) if isinstance(part, list) else part)  # files give tuples back as lists


def _digest(part: Any, digest: Any) -> None:
    if isinstance(part, np.ndarray):
        digest.update(f"{part.dtype} {part.shape}".encode())
        if part.dtype == object:
            digest.update(repr(part.tolist()).encode())
        elif part.size:  # its memory as it is: a copy of a table on disk may be too large
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8))
    elif hasattr(part, "update_digest"):
        part.update_digest(digest)
    elif is_dataclass(part):
        for field in fields(part):
            _digest(getattr(part, field.name), digest)
    elif isinstance(part, (list, tuple)):
        for item in part:
            _digest(item, digest)
    else:
        digest.update(repr(part).encode())
