"""Who asked for what is being done: the name of the authorization rule, for the operations log (O-7).

It travels with the context of the task that serves the request, so nothing between the gateway and the namespace has
to carry it: a gateway notes it when it has authorised, whoever writes a record reads it. Tasks that a request starts
have it too; work that nobody asked for (auto-delete, the configuration file at start) has none.
"""

from contextvars import ContextVar
from typing import Final

NOBODY: Final = ""

_caller: ContextVar[str] = ContextVar("busway_caller", default=NOBODY)


def note_caller(rule_name: str) -> None:
    """For the rest of this task. A name, never a key or a token."""
    _caller.set(rule_name)


def present_caller() -> str:
    return _caller.get()
