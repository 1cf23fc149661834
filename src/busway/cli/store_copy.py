"""`busway stores copy`: a bus that nobody serves comes to lie in other stores."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, progress
from busway.cli.verbs import CommandFailed, DataOption, JsonOption, WrongCall

if TYPE_CHECKING:
    from busway.safekeeping.bus_copy import StoreEnd

COPY_HELP: Final = """Copy a bus that nobody serves to other stores: from files into a database, back, or on.

Messages keep their numbers, delivery counts, times and sessions; entities, rules, keys and positions in event hubs
stay. Everything is read back and compared at the end. What ends a copy early loses nothing: the same call goes on
with it. The stores that are copied from stay as they are.

Exit status 0: all of it is there; 1: it is not, and a sentence says why."""
FromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="A store's address (sqlite:PATH of a file, or of a folder with store-0.db …), or a database's"
        " (postgresql://…), or @FILE with one in each line; repeatable, in the order of the server's --store."
        " Without it: those of the data directory.",
    ),
]
ToOption = Annotated[
    list[str],
    typer.Option(
        "--to", metavar="URL", help="Where it comes to lie, likewise; of a folder as many files as needed."
    ),
]
SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-damaged", help="Leave damaged messages and events behind, instead of copying nothing."
    ),
]


def copy(
    to: ToOption,
    from_: FromOption = None,
    *,
    data: DataOption = None,
    skip_damaged: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """See `COPY_HELP`."""
    import asyncio  # for this verb alone: it would slow down all the others

    from busway.clock import Clock, Entropy
    from busway.data_directory import DataDirectory
    from busway.safekeeping.bus_copy import copy_bus
    from busway.safekeeping.stopped_copy import DirectoryInUse, held
    from busway.safekeeping.store_copy import CopyRefused
    from busway.safekeeping.store_ends import ends_of, ends_of_directory
    from busway.serve_options import default_data_directory
    from busway.store.contract import StoreError

    clock, entropy = Clock(), Entropy()
    targets, sources = _addresses("--to", to), _addresses("--from", from_ or [])

    def target_ends(stores: int) -> "Sequence[StoreEnd]":
        return ends_of(targets, clock, entropy, stores)

    began_s = time.monotonic()
    try:
        with ExitStack() as stack:
            if sources:
                source_ends = ends_of(sources, clock, entropy)
            else:
                directory = DataDirectory(data or default_data_directory())
                stack.enter_context(held(directory))
                source_ends = ends_of_directory(directory, clock)
            told = asyncio.run(
                copy_bus(source_ends, target_ends, _progress(stack), skip_damaged=skip_damaged)
            )
    except DirectoryInUse as error:
        raise CommandFailed(f"{error}: stop that server first. Nothing was copied.") from error
    except CopyRefused as error:
        raise CommandFailed(str(error)) from error
    except StoreError as error:
        raise CommandFailed(f"{error} What is copied so far stays: the same call goes on with it.") from error
    told["seconds"] = round(time.monotonic() - began_s, 1)
    if as_json:
        print_json(told)
    else:
        _print(told)


def _addresses(option: str, given: list[str]) -> tuple[str, ...]:
    from busway.serve_options import WrongOptions, store_addresses

    try:
        return store_addresses(given)
    except WrongOptions as error:
        raise WrongCall(str(error).replace("--store", option)) from None


def _progress(stack: ExitStack) -> "Callable[[str], Callable[[int], None]]":
    def begin(label: str) -> "Callable[[int], None]":
        return stack.enter_context(progress(label, None)).advance

    return begin


def _print(told: dict[str, object]) -> None:
    rows, stores, left_out = told["rows"], told["stores"], told["leftOut"]
    assert isinstance(rows, dict)
    assert isinstance(stores, list)
    counts = ", ".join(
        f"{count:,} {_WORDS[kind]}" for kind, count in rows.items() if count and kind in _WORDS
    )
    typer.echo(
        f"The bus {told['namespace']} lies in {len(stores)} other stores, compared row by row:"
        f" {counts or 'no messages'}."
    )
    if left_out:
        typer.echo(f"{left_out:,} damaged rows were left behind.")


_WORDS: Final = {
    "messages": "messages",
    "states": "states of sessions",
    "ids": "message ids",
    "chunks": "runs of events",
}
