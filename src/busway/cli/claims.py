"""`busway claims list|release`: messages that streams of Spark hold, and getting back what a lost one left behind."""

from typing import Annotated

import typer

from busway.cli.output import print_json, print_table
from busway.cli.receiving import EntityArgument
from busway.cli.verbs import JsonOption, ServerOptions, WrongCall, example, verb, verb_family

family = verb_family("List what streams hold in a queue or subscription, and release it.")


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="claims", epilog=example("busway claims list orders"))


@verb(family, "list", "busway claims list orders --json")
def list_claims(
    entity: EntityArgument,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """List the claims that hold messages. Looks at every deferred message of the entity."""
    with server.administration() as client:
        found = client.claims(entity)
    if as_json:
        print_json(found)
    else:
        print_table(("STAMP", "MESSAGES"), [[each.get("stamp"), each.get("messages")] for each in found])


@verb(family, "release", "busway claims release orders 5f0c41d28e7b4a3c9d10e2f3a4b5c6d7")
def release(
    entity: EntityArgument,
    stamp: Annotated[
        str | None, typer.Argument(metavar="STAMP", help="As `busway claims list` shows it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every claim of the entity.")] = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Make messages available again that a claim holds. Only for streams whose checkpoint is lost: a running one
    stops when its messages are taken away."""
    if (stamp is None) != everything:
        raise WrongCall("Say which claim: a STAMP, or --all.")
    released = locked = 0
    with server.administration() as client:
        stamps = [str(each["stamp"]) for each in client.claims(entity)] if stamp is None else [stamp]
        for each in stamps:
            some_released, some_locked = client.release_claim(entity, each)
            released += some_released
            locked += some_locked
    if as_json:
        print_json({"released": released, "locked": locked})
        return
    typer.echo(f"{released} message(s) of {entity} are available again.")
    if locked:
        typer.echo(f"{locked} are locked by their numbers just now and stay held.", err=True)
