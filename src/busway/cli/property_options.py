"""One option for each property of an entity: its name in kebab-case.

The table is the one that ATOM bodies are written from, so neither can lack what the other has.
"""

import functools
import inspect
from collections.abc import Callable, Sequence

import typer

from busway.client.entity_properties import Kind, Property

Command = Callable[..., None]


def with_property_options(
    properties: Sequence[Property], *, changeable_only: bool = False
) -> Callable[[Command], Command]:
    """The command gets those that were used as `properties`."""
    offered = [known for known in properties if known.changeable or not changeable_only]

    def decorate(command: Command) -> Command:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "properties"
        ]

        @functools.wraps(command)
        def with_properties(**arguments: object) -> None:
            used = {known.element: arguments.pop(known.parameter) for known in offered}
            given = {element: value for element, value in used.items() if value is not None}
            command(**arguments, properties=given)

        parameters = own + [_parameter(known) for known in offered]
        vars(with_properties)["__signature__"] = inspect.Signature(parameters)
        with_properties.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_properties

    return decorate


def _parameter(known: Property) -> inspect.Parameter:
    types: dict[Kind, object] = {Kind.BOOLEAN: bool | None, Kind.INTEGER: int | None}
    names = f"--{known.option}"
    if known.kind is Kind.BOOLEAN:
        option = typer.Option(None, f"{names}/--no-{known.option}", help=known.meaning, show_default=False)
    else:
        option = typer.Option(None, names, help=known.meaning, metavar=known.kind.value)
    annotation = types.get(known.kind, str | None)
    return inspect.Parameter(
        known.parameter, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
    )
