"""The tree of verbs, and the one place where failures become a sentence and an exit code.

Exit codes: 0 done, 1 it failed, 2 the call was wrong. No traceback, unless BUSWAY_DEBUG is set.
"""

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.main import get_command

from busway import version_line
from busway.cli.failures import WrongCall, sentence_of
from busway.cli.plain_values import read_plainly
from busway.cli.verbs import example

EXIT_FAILED: Final = 1
EXIT_WRONG_CALL: Final = 2

#: Verb → the file of its family, where that has several the name of it too, in the order of the help.
FAMILIES: Final = {
    "serve": "serving",
    "queue": "entities:QUEUE",
    "topic": "entities:TOPIC",
    "subscription": "entities:SUBSCRIPTION",
    "rule": "rules",
    "send": "sending",
    **dict.fromkeys(("receive", "peek", "purge"), "receiving"),
    "claims": "claims",
    "resubmit": "resubmitting",
    "eventhub": "eventhubs",
    "events": "events",
    "pipeline": "pipeline",
    "key": "keys",
    **dict.fromkeys(("stores", "reset"), "stores"),
    **dict.fromkeys(("export", "import"), "definitions"),
    **dict.fromkeys(("connection-string", "health"), "health"),
    "exec": "programs",
}


@functools.cache
def app_for(verb: str) -> typer.Typer:
    """The tree with the family of this verb alone, because reading all of them costs more than most verbs do; with
    all of them for everything that is no verb: help, and mistakes, which are told what there is."""
    app = typer.Typer(
        name="busway",
        help="A message bus you run yourself, wire-compatible with Azure Service Bus and Event Hubs.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=example("busway queue create orders --lock-duration PT30S"))(_root)
    for family in [FAMILIES[verb]] if verb in FAMILIES else dict.fromkeys(FAMILIES.values()):
        file, _, name = family.partition(":")
        module = importlib.import_module(f"busway.cli.{file}")
        (getattr(module, name) if name else module).register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


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


def run(arguments: Sequence[str]) -> int:
    """Runs one verb and returns the exit code."""
    try:
        command = get_command(app_for(verb_of(arguments)))
        read_plainly(command)
        code = command(list(arguments), prog_name="busway", standalone_mode=False)
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


def verb_of(arguments: Sequence[str]) -> str:
    """Empty when the call does not begin with one."""
    return arguments[0] if arguments and arguments[0] in FAMILIES else ""


def _fail(sentence: str, code: int) -> int:
    typer.echo(f"busway: {sentence}", err=True)
    return code


def _silence_stdout() -> None:
    """The reader is gone (`busway peek orders | head`): keep the interpreter from complaining at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
