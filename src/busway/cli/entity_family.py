"""`create|update|show|list|delete` of a kind of entity, the same for all kinds.

A kind is a row: its arguments, what each verb says of itself and calls, and how an entity is printed. A verb that a
kind does not have is left out of its row. What a call asks for is checked before a server is looked for.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import typer

from busway.cli.output import print_json, print_table, shown
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, example, verb, verb_family, with_parameters

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient

#: An entity as the client gives it.
Entity = TypeVar("Entity")
#: What `create` and `update` send.
Wish = TypeVar("Wish")
#: The arguments of a call: an entity's own name last, before it those of what it belongs to.
Names = tuple[str, ...]
#: The entity's options that were used, by parameter.
Given = Mapping[str, Any]
Client: TypeAlias = "ServiceBusAdministrationClient"

_NAMED = inspect.Parameter.KEYWORD_ONLY
_SERVER = inspect.Parameter("server", _NAMED, annotation=ServerOptions)
_JSON = inspect.Parameter("as_json", _NAMED, default=False, annotation=JsonOption)


def option(
    parameter: str, kind: object, name: str, default: object = None, **settings: Any
) -> inspect.Parameter:
    return inspect.Parameter(
        parameter, _NAMED, default=typer.Option(default, name, **settings), annotation=kind
    )


def _no_warning(client: Client, names: Names, wish: object) -> None:
    del client, names, wish


@dataclass(frozen=True)
class ChangeVerb(Generic[Entity, Wish]):
    """`create` or `update`."""

    about: str
    example: str
    options: Sequence[inspect.Parameter]
    #: What the call asks for; raises WrongCall where that makes no sense.
    wish: Callable[[Names, Given], Wish]
    call: Callable[[Client, Names, Wish], Entity]
    #: Tells what somebody should know once it is done.
    warn: Callable[[Client, Names, Wish], None] = _no_warning
    #: The option to suggest to a call without any, where that is wrong.
    hint: str = ""


@dataclass(frozen=True)
class Parts:
    """What an entity consists of, shown instead of its properties on request."""

    option: str
    meaning: str
    call: Callable[[Client, Names], Sequence[Mapping[str, object]]]
    columns: Mapping[str, str]  # head → key


@dataclass(frozen=True)
class Show(Generic[Entity]):
    about: str
    example: str
    call: Callable[[Client, Names], Entity]
    parts: Parts | None = None


@dataclass(frozen=True)
class Listing(Generic[Entity]):
    about: str
    example: str
    call: Callable[[Client, Names], Iterable[Entity]]
    heads: Sequence[str]
    row: Callable[[Entity], Sequence[object]]


@dataclass(frozen=True)
class Deletion:
    about: str
    example: str
    call: Callable[[Client, Names], None]


@dataclass(frozen=True)
class _Call:
    """One call of a verb, as typer has read it."""

    names: Names
    given: Given
    server: ServerOptions
    as_json: bool


@dataclass(frozen=True)
class EntityFamily(Generic[Entity, Wish]):
    word: str  # of the command line
    about: str
    example: str
    #: The subject of the sentences that tell what was done: "Subscription {name} of {topic}".
    subject: str
    #: Parameter → how it is called in the help, and its meaning.
    arguments: Mapping[str, tuple[str, str]]
    as_object: Callable[[Entity], Mapping[str, object]]
    create: ChangeVerb[Entity, Wish]
    listing: Listing[Entity]
    deletion: Deletion
    update: ChangeVerb[Entity, Wish] | None = None
    show: Show[Entity] | None = None
    #: For people, where this differs from the object.
    as_lines: Callable[[Entity], Mapping[str, object]] | None = None

    def register(self, app: typer.Typer) -> typer.Typer:
        """The family, for verbs that this kind has besides."""
        verbs = verb_family(self.about)
        app.add_typer(verbs, name=self.word, epilog=example(self.example))
        self._add(verbs, "create", self.create, partial(self._change, self.create, "created"))
        if self.update is not None:
            self._add(verbs, "update", self.update, partial(self._change, self.update, "changed"))
        if self.show is not None:
            self._add(verbs, "show", self.show, partial(self._show, self.show))
        self._add(verbs, "list", self.listing, self._list)
        self._add(verbs, "delete", self.deletion, self._delete)
        return verbs

    def _add(
        self,
        verbs: typer.Typer,
        name: str,
        row: "ChangeVerb[Entity, Wish] | Show[Entity] | Listing[Entity] | Deletion",
        run: Callable[[_Call], None],
    ) -> None:
        arguments = list(self.arguments)[:-1] if row is self.listing else list(self.arguments)

        def command(server: ServerOptions, as_json: bool = False, **given: Any) -> None:
            names = tuple(given.pop(parameter) for parameter in arguments)
            used = {parameter: value for parameter, value in given.items() if value is not None}
            run(_Call(names, used, server, as_json))

        taken = [_argument(parameter, *self.arguments[parameter]) for parameter in arguments]
        taken += [*_options(row), _SERVER, *([] if row is self.deletion else [_JSON])]
        verb(verbs, name, row.example, about=row.about)(with_parameters(command, taken))

    def _change(self, row: ChangeVerb[Entity, Wish], done: str, call: _Call) -> None:
        if row.hint and not call.given:
            raise WrongCall(f"Nothing to change: give at least one property, for example {row.hint}.")
        wish = row.wish(call.names, call.given)
        with call.server.administration() as client:
            entity = row.call(client, call.names, wish)
            if call.as_json:
                print_json(self.as_object(entity))
            else:
                typer.echo(f"{self._subject(call.names)} is {done}.")
            row.warn(client, call.names, wish)

    def _show(self, row: Show[Entity], call: _Call) -> None:
        with call.server.administration() as client:
            if row.parts is not None and call.given[_PARTS]:
                parts, columns = row.parts.call(client, call.names), row.parts.columns
                rows = [[each.get(key) for key in columns.values()] for each in parts]
                print_json(list(parts)) if call.as_json else print_table(tuple(columns), rows)
                return
            entity = row.call(client, call.names)
        if call.as_json:
            print_json(self.as_object(entity))
            return
        for key, value in (self.as_lines or self.as_object)(entity).items():
            typer.echo(f"{key}: {shown(value)}")

    def _list(self, call: _Call) -> None:
        with call.server.administration() as client:
            found = list(self.listing.call(client, call.names))
        if call.as_json:
            print_json([self.as_object(each) for each in found])
        else:
            print_table(self.listing.heads, [self.listing.row(each) for each in found])

    def _delete(self, call: _Call) -> None:
        with call.server.administration() as client:
            self.deletion.call(client, call.names)
        typer.echo(f"{self._subject(call.names)} is deleted.")

    def _subject(self, names: Names) -> str:
        return self.subject.format(**dict(zip(self.arguments, names, strict=True)))


_PARTS = "with_parts"


def _argument(parameter: str, metavar: str, meaning: str) -> inspect.Parameter:
    argument = typer.Argument(..., metavar=metavar, help=meaning)
    return inspect.Parameter(parameter, _NAMED, default=argument, annotation=str)


def _options(row: object) -> Sequence[inspect.Parameter]:
    if isinstance(row, ChangeVerb):
        return row.options
    if isinstance(row, Show) and row.parts is not None:
        return [option(_PARTS, bool, row.parts.option, False, help=row.parts.meaning)]
    return []
