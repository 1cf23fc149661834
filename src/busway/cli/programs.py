"""`busway exec`: runs a program that finds the bus and trusts its certificates; with `--serve` a bus of its own."""

import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from busway.cli.own_server import environment_of
from busway.cli.verbs import CommandFailed, ServerOptions, verb

_SERVE: Final = (
    "Start a bus of its own for the program, in a temporary directory on a free port, and stop it afterwards."
)


def register(app: typer.Typer) -> None:
    verb(
        app,
        "exec",
        "busway exec -- python examples/first_message.py",
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(execute)


def execute(
    program: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM …", help="The program and its arguments.")
    ],
    *,
    server: ServerOptions,
    serve: Annotated[bool, typer.Option("--serve", help=_SERVE)] = False,
) -> int:
    """Run a program that finds and trusts the bus. Its environment gets the connection string and the variables
    with which clients of Python, Node, Java, Go and curl are told whom to trust."""
    if serve:
        return _run_beside_own_server(program)
    target = server.find()
    environment = environment_of(os.environ, target.text, target.ca_file)
    try:
        os.execvpe(program[0], program, environment)
    except FileNotFoundError:
        raise CommandFailed(f"The program '{program[0]}' was not found.") from None
    except PermissionError:
        raise CommandFailed(f"The program '{program[0]}' may not be run.") from None


def _run_beside_own_server(program: list[str]) -> int:
    """The program's exit status, or 128 and the number of the signal that ended it."""
    from busway.cli.own_server import OwnServer

    with TemporaryDirectory(prefix="busway-") as folder, OwnServer(Path(folder)) as server:
        environment = environment_of(os.environ, server.connection_string, server.ca_file)
        try:
            process = subprocess.Popen(program, env=environment)
        except FileNotFoundError:
            raise CommandFailed(f"The program '{program[0]}' was not found.") from None
        except PermissionError:
            raise CommandFailed(f"The program '{program[0]}' may not be run.") from None
        status = _wait_for(process)
    return status if status >= 0 else 128 - status


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C reaches the program by itself, and SIGTERM is handed on: when to end is for the program to say."""
    former = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        return process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
