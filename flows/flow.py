"""The decorator of every flow: Prefect's, whose records hold nothing pickled; flows as commands; forms.

Flows import this before anything else of ours: Prefect and MLflow read their settings when imported.
"""

import gc
import re
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_origin, get_type_hints

from flows.local import runtime

runtime.configure()

import prefect  # noqa: E402
import typer  # noqa: E402
from prefect.exceptions import ParameterTypeError  # noqa: E402
from prefect.serializers import JSONSerializer  # noqa: E402
from pydantic import Field  # noqa: E402

from tasks.settings import DATASETS, load, model_names  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")

Dataset = Annotated[str, Field(json_schema_extra={"enum": list(DATASETS)})]
"""A dataset's name; the form that starts a run offers these."""

Model = Annotated[str, Field(json_schema_extra={"enum": model_names(Path("params.yaml"))})]
"""A model's name; the form offers the catalogue's and those that params.yaml adds."""


def as_sentence(value: object) -> str:
    """Write what Prefect keeps of the exception that ended a flow run: its name and its sentence.

    Raises TypeError if it is no exception; results are not stored.
    """
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise TypeError(f"{type(value).__name__} is not kept")


def flow(**settings: Any) -> Callable[[Callable[P, R]], prefect.Flow[P, R]]:
    """Make a flow with these settings of `prefect.flow`.

    Prefect writes the exception of a failed flow to its result storage whatever `persist_result` says, and
    pickles it by default. A task uses the serializer of its flow. What is read is never made an object.
    """
    return prefect.flow(
        persist_result=False,  # a serializer alone would have Prefect keep what flows return
        result_serializer=JSONSerializer(object_encoder="flows.flow.as_sentence", object_decoder=None),
        **settings,
    )


def command(
    module: str,
    of: prefect.Flow[..., Any],
    then: Callable[[Any], object] = bool,
    options: Collection[str] = (),
) -> typer.Typer:
    """Make a command of a flow, and run it if Python runs its module; `then` is called with its result.

    Its required parameters but `options` are arguments, the others options, with the help that its docstring
    has of them; one that takes several, ``models``, is an option to be repeated, ``--model``.
    """
    text = of.fn.__doc__ or ""
    helps = dict(re.findall(r"^ {8}(\w+): (.+)$", text, re.MULTILINE))
    plain = get_type_hints(of.fn)
    parameters = []
    for name, parameter in signature(of.fn).parameters.items():
        kind, flags, default = plain[name], [], parameter.default
        if get_origin(kind) is Sequence:
            kind, flags, default = list[str], [f"--{name.removesuffix('s')}"], []
        is_argument = default is Parameter.empty and name not in options
        info = typer.Argument(help=helps[name]) if is_argument else typer.Option(*flags, help=helps[name])
        kind = Annotated[kind, info]
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    def main(**words: Any) -> None:
        try:
            of.validate_parameters(words)
        except ParameterTypeError as error:
            raise typer.BadParameter(str(error).partition("\n - ")[2]) from None
        runtime.run(lambda: then(of(**words)), load if "dataset" in words else bool)

    about = cleandoc(text.partition("Args:")[0]).split("\n\n")
    main.__doc__ = "\n\n".join(paragraph.replace("\n", " ") for paragraph in about)
    main.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    main.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(main)
    if module == "__main__":
        gc.freeze()  # what was imported stays: at its end Python would look through all of it for two seconds
        app()
    return app
