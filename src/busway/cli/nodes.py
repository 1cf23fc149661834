"""`busway nodes`: the servers that share the stores of a bus."""

from typing import Final

import typer

from busway.cli.output import print_json, print_table
from busway.cli.verbs import JsonOption, ServerOptions, verb

_HEADINGS: Final = ("NAME", "STATE", "STORES", "ADDRESS", "VERSION", "UP", "LAST BEAT")


def register(app: typer.Typer) -> None:
    verb(app, "nodes", "busway nodes --json")(nodes)


def nodes(*, server: ServerOptions, as_json: JsonOption = False) -> None:
    """List the servers that share the stores: which of them serves (owner), which wait (standby), and which have not
    been heard of for a lease (silent). Ask the one that serves."""
    with server.administration() as client:
        found = client.nodes()
    if as_json:
        print_json(found)
    elif not found:
        typer.echo("This server shares its stores with nobody: they are files.")
    else:
        print_table(_HEADINGS, [_row(node) for node in found])


def _row(node: dict[str, object]) -> list[object]:
    return [
        f"{node['name']}{' (this one)' if node['is_this'] else ''}",
        node["state"],
        node["stores"],
        node["address"],
        node["version"],
        duration(float(str(node["uptime_s"]))),
        f"{node['last_beat_s']} s ago",
    ]


def duration(seconds: float) -> str:
    """The two largest parts: `3 d 4 h`."""
    left, parts = int(seconds), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
