"""The decorator of every flow: Prefect's, whose records hold nothing pickled; the lists of forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from flows.local import runtime

runtime.configure()

import prefect  # noqa: E402
from prefect.serializers import JSONSerializer  # noqa: E402
from pydantic import Field  # noqa: E402

from tasks.settings import DATASETS, model_names  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")

Dataset = Annotated[str, Field(json_schema_extra={"enum": list(DATASETS)})]
"""A dataset's name; the form that starts a run offers these."""

Model = Annotated[str, Field(json_schema_extra={"enum": model_names(Path("params.yaml"))})]
"""A model's name; the form offers the catalogue's and those that params.yaml adds."""


def as_sentence(value: object) -> str:
    """What Prefect keeps of the exception that ended a flow run: its name and its sentence.

    Raises
    ------
    TypeError
        If it is no exception; results are not kept.
    """
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise TypeError(f"{type(value).__name__} is not kept")


def flow(**settings: Any) -> Callable[[Callable[P, R]], prefect.Flow[P, R]]:
    """`prefect.flow` with these settings.

    Prefect writes the exception of a failed flow to its result storage whatever `persist_result` says, and
    pickles it by default. A task uses the serializer of its flow. What is read is never made an object.
    """
    made: Callable[[Callable[P, R]], prefect.Flow[P, R]] = prefect.flow(
        persist_result=False,  # a serializer alone would have Prefect keep what flows return
        result_serializer=JSONSerializer(object_encoder="flows.flow.as_sentence", object_decoder=None),
        **settings,
    )
    return made
