"""The tree of verbs, and the one place where failures become a sentence and an exit code.

Exit codes: 0 done, 1 it failed, 2 the call was wrong. No traceback, unless BUSWAY_DEBUG is set.

Values of a call are read without a conversion library. typer has pydantic convert every value of a call, those
that were not given too, and loading pydantic costs more than most verbs do. What people give is nearly always
plain: text, a path, a number. That is read here (`read_plainly`). Whatever is not certain, and above all whatever
is wrong, is left to typer, so each call means what it means to typer and each mistake is told in its words.
"""

import functools
import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import typer
from typer.main import get_command

from busway import version_line
from busway.cli.verbs import WrongCall, example, sentence_of

#: Stands for "ask typer".
UNCERTAIN: Final = object()
_INTEGER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def read_plainly(command: Any) -> None:
    """For a command of typer's and all below it. A typer that does it in another way goes on as it does."""
    parameters_of = command.get_params

    def get_params(context: Any) -> Any:
        """Asked here and not taken from `params`, because --help is made when it is asked for."""
        parameters = parameters_of(context)
        for parameter in parameters:
            own = vars(parameter)
            if hasattr(parameter, "type_descriptor") and hasattr(parameter, "get_runtime_param"):
                own.setdefault("get_runtime_param", _Reader(parameter).itself)
        return parameters

    vars(command)["get_params"] = get_params
    for below in getattr(command, "commands", {}).values():
        read_plainly(below)


class _Reader:
    """Stands where typer has a converter, and gets that one when it is needed."""

    def __init__(self, parameter: Any) -> None:
        self._descriptor = parameter.type_descriptor
        self._converter = parameter.get_runtime_param

    def itself(self) -> "_Reader":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        plain = plain_value(value, self._descriptor.annotation, self._descriptor.parameter_info)
        return self._converter().coerce(value, param=param, ctx=ctx) if plain is UNCERTAIN else plain


def plain_value(value: object, annotation: Any, info: Any) -> object:
    """What typer would make of it, or UNCERTAIN."""
    if info.parser is not None:
        return UNCERTAIN
    if get_origin(annotation) is list and get_args(annotation) == (str,) and isinstance(value, list | tuple):
        return list(value) if all(_is_text(item) for item in value) else UNCERTAIN
    if annotation is str:
        return value if _is_text(value) else UNCERTAIN
    if annotation is bool:
        return value if isinstance(value, bool) else UNCERTAIN
    if annotation is int or annotation is float:
        return _number(value, annotation, info)
    if annotation is Path:
        return _path(value, info)
    return UNCERTAIN


def _is_text(value: object) -> bool:
    """Bytes that are no UTF-8 arrive as lone surrogates: those are not."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(value: object, kind: type[int] | type[float], info: Any) -> object:
    form = _INTEGER if kind is int else _DECIMAL
    if type(value) is not kind and not (isinstance(value, str) and form.fullmatch(value)):
        return UNCERTAIN
    number = kind(value)
    is_below = info.min is not None and number < info.min
    is_above = info.max is not None and number > info.max
    return UNCERTAIN if is_below or is_above else number


def _path(value: object, info: Any) -> object:
    """Where nothing is asked of a path, except that one may read what is there."""
    is_free = info.file_okay and info.dir_okay and not (info.exists or info.writable)
    has_more = info.allow_dash or info.resolve_path or info.path_type is not None
    if not is_free or has_more or not _is_text(value):
        return UNCERTAIN
    path = Path(str(value))
    return path if not os.path.exists(path) or os.access(path, os.R_OK) else UNCERTAIN


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
    "nodes": "nodes",
    **dict.fromkeys(("export", "import"), "definitions"),
    **dict.fromkeys(("backup", "check"), "safekeeping"),
    **dict.fromkeys(("connection-string", "health"), "health"),
    "console": "console",
    "top": "top",
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
