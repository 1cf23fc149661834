"""`busway top`: the overview of the console in a terminal, the busiest entities first."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from busway.cli.output import print_json, print_table, shown
from busway.cli.verbs import JsonOption, ServerOptions, verb

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]

_LINES: Final = 30
_HEADS: Final = {
    "path": "ENTITY",
    "kind": "KIND",
    "status": "STATUS",
    "active": "ACTIVE",
    "deadLettered": "DEAD",
    "scheduled": "SCHED",
    "sizeInBytes": "BYTES",
    "inPerSecond": "IN/S",
    "outPerSecond": "OUT/S",
    "fragments": "FRAGS",
}
_TEXTS: Final = ("path", "kind", "status")


def register(app: typer.Typer) -> None:
    verb(app, "top", "busway top --every 5")(top)


def top(
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="Look so often.", min=0.5, show_default=True)
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and print what there is.")] = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Show the busiest entities as they change: messages, dead letters, rates, fragments. Ctrl-C ends it."""
    from rich.live import Live

    with server.administration() as client:
        told = client.overview()
        if as_json:
            print_json(told)
        elif once:
            print_table(list(_HEADS.values()), [[row[name] for name in _HEADS] for row in busiest(told)])
        else:
            with Live(table_of(told, _LINES), screen=True, auto_refresh=False) as screen:
                while True:
                    time.sleep(every)
                    screen.update(table_of(client.overview(), _LINES), refresh=True)


def busiest(told: dict[str, Any]) -> list[Row]:
    """By what flows, then by dead letters, by what waits, by name."""
    rows = [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]
    return sorted(
        rows,
        key=lambda row: (
            -(row["inPerSecond"] + row["outPerSecond"]),
            -(row["deadLettered"] or 0),
            -(row["active"] or 0),
            row["path"],
        ),
    )


def table_of(told: dict[str, Any], lines: int) -> "Table":
    """So many lines. Names come from strangers: they are text, not markup."""
    from rich.table import Table
    from rich.text import Text

    rows = busiest(told)
    stores = ", ".join(f"{store['name']} {store['state']}" for store in told["stores"])
    left_out = max(0, len(rows) - lines)
    more = f"; {left_out} more entities" if left_out else ""
    caption = Text(shown(f"{stores}; {told['connections']} connections{more}"))
    table = Table(title=Text(shown(told["namespace"])), caption=caption, box=None, pad_edge=False)
    for name, head in _HEADS.items():
        table.add_column(
            head,
            justify="left" if name in _TEXTS else "right",
            no_wrap=True,
            min_width=24 if name == "path" else None,
        )
    for row in rows[:lines]:
        has_dead = bool(row["deadLettered"])
        cells = [
            Text(shown(row[name]), style="bold red" if name == "deadLettered" and has_dead else "")
            for name in _HEADS
        ]
        table.add_row(*cells)
    return table
