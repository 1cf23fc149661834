"""The tree of verbs, and the one place where failures become a sentence and an exit code.

Exit codes: 0 done, 1 it failed, 2 the call was wrong. No traceback, unless BUSWAY_DEBUG is set.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Final

import typer

from busway.cli import (
    claims,
    connection_strings,
    definitions,
    eventhubs,
    events,
    keys,
    pipeline,
    programs,
    queues,
    receiving,
    resubmitting,
    rules,
    sending,
    serving,
    stores,
    subscriptions,
    topics,
)
from busway.cli.failures import WrongCall, sentence_of
from busway.cli.output import example

EXIT_FAILED: Final = 1
EXIT_WRONG_CALL: Final = 2

app = typer.Typer(
    name="busway",
    help="A message bus you run yourself, wire-compatible with Azure Service Bus and Event Hubs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from busway.compiled import status

        typer.echo(f"busway {version('busway')}, {status()}")
        raise typer.Exit


@app.callback(epilog=example("busway queue create orders --lock-duration PT30S"))
def _root(
    version_wanted: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and whether it runs compiled.", callback=_print_version
        ),
    ] = False,
) -> None:
    """A message bus you run yourself, wire-compatible with Azure Service Bus and Event Hubs."""
    del version_wanted


for family in (
    *(serving, queues, topics, subscriptions, rules, sending, receiving, claims, resubmitting),
    *(eventhubs, events, pipeline),
    *(keys, stores, definitions, connection_strings, programs),
):
    family.register(app)


def run(arguments: Sequence[str]) -> int:
    """Runs one verb and returns the exit code."""
    try:
        code = app(list(arguments), prog_name="busway", standalone_mode=False)
    except typer.TyperException as error:
        return _fail(error.format_message(), EXIT_WRONG_CALL if error.exit_code == 2 else EXIT_FAILED)
    except WrongCall as error:
        return _fail(str(error), EXIT_WRONG_CALL)
    except typer.Abort:
        return _fail("Stopped.", EXIT_FAILED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_FAILED
    except Exception as error:
        if os.environ.get("BUSWAY_DEBUG"):
            raise
        return _fail(sentence_of(error), EXIT_FAILED)
    return code if isinstance(code, int) else 0


def _fail(sentence: str, code: int) -> int:
    typer.echo(f"busway: {sentence}", err=True)
    return code


def _silence_stdout() -> None:
    """The reader is gone (`busway peek orders | head`): keep the interpreter from complaining at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
