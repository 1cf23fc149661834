"""How verbs are declared: options that many of them have once, an example with each.

A parameter whose type is an `OptionGroup` stands for all options of that class, and the verb gets one object of it.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer

#: What typer calls: its parameters are the arguments and options.
Command = TypeVar("Command", bound=Callable[..., object])


class OptionGroup:
    """Made a dataclass whose fields are annotated as typer wants its options."""


def verb_family(about: str, **settings: Any) -> typer.Typer:
    """Verbs below a common word; that word alone shows the help, unless the settings say otherwise."""
    return typer.Typer(help=about, rich_markup_mode=None, **{"no_args_is_help": True, **settings})


def verb(
    app: typer.Typer, name: str, call: str, *, about: str | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Adds a verb with its example; what it does is told by `about`, else by its docstring."""

    def declare(command: Command) -> Command:
        app.command(name, help=about, epilog=example(call), **settings)(ungrouped(command))
        return command

    return declare


def example(call: str) -> str:
    """The last lines of a verb's help; the mark keeps the call from being wrapped."""
    return f"\b\nExample:\n  {call}"


def ungrouped(command: Callable[..., object]) -> Callable[..., object]:
    """The same command with the options of its groups as parameters of its own."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: _options(each.annotation) for each in own if _is_group(each.annotation)}
    if not groups:
        return command

    @functools.wraps(command)
    def regroup(**arguments: object) -> object:
        for each in own:
            if each.name in groups:
                given = {option.name: arguments.pop(option.name) for option in groups[each.name]}
                arguments[each.name] = each.annotation(**given)
        return command(**arguments)

    return with_parameters(regroup, [option for each in own for option in groups.get(each.name, [each])])


def with_parameters(
    command: Callable[..., object], parameters: Sequence[inspect.Parameter]
) -> Callable[..., object]:
    """Has typer see these as what the command takes, all of them by name."""
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(named)
    command.__annotations__ = {each.name: each.annotation for each in named}
    return command


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options(group: type) -> list[inspect.Parameter]:
    return list(inspect.signature(group, eval_str=True).parameters.values())
