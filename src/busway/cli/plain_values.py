"""Values of the command line that need no conversion library.

typer has pydantic convert every value of a call, those that were not given too, and loading pydantic costs more than
most verbs do. What people give is nearly always plain: text, a path, a number. That is read here. Whatever is not
certain, and above all whatever is wrong, is left to typer, so each call means what it means to typer and each
mistake is told in its words.
"""

import os
import re
from pathlib import Path
from typing import Any, Final, get_args, get_origin

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
