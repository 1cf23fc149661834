"""Everything that can be asked for, as the code has it: performatives, operations, routes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from types import CodeType

from busway.amqp.errors import AmqpError
from busway.amqp.type_table import (
    TABLE,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Header,
    Modified,
    Open,
    Properties,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.gateway import http
from busway.gateway.amqp.nodes.management_node import OPERATIONS

#: Composite types that a client writes as such: the others are parts of these, or only ever written by a server.
ASKED = {
    kind.__name__
    for kind in (
        Open,
        Begin,
        Attach,
        Flow,
        Transfer,
        Disposition,
        Detach,
        End,
        Close,
        SaslInit,
        Declare,
        Discharge,
    )
}
PARTS = {
    kind.__name__
    for kind in (
        *(
            SaslMechanisms,
            SaslChallenge,
            SaslResponse,
            SaslOutcome,
            AmqpError,
            Source,
            Target,
            Coordinator,
            Received,
        ),
        *(Accepted, Rejected, Released, Modified, Declared, TransactionalState, Header, Properties),
    )
}
#: Routes that only choose another one, or are the longer half of one.
CHOOSERS = {
    "ClaimsRoute._reading",
    "Messages._receive",
    "EntityRoutes._listed",
    "EntityRoutes._nothing",
    "EntityRoutes.put",
    "SubscriptionRoutes.put",
}
#: Routes for what is not there: they only refuse, or send elsewhere.
REFUSALS = {
    "ClaimsRoute.unknown",
    "HubRoutes.nothing",
    "EntityRoutes.event_hubs",
    "EntityRoutes.no_list",
    "EntityRoutes.nothing_below_subscription",
    "StagingRoute.unknown",
    "StatusPage.redirect",
}


def composites() -> set[str]:
    """All that the engine can read."""
    return {definition.make.__name__ for definition in TABLE.rows}


def operations() -> dict[str, str]:
    """Of an entity's `$management` → the right that it needs."""
    return {name: right for name, (right, _) in OPERATIONS.items()}


@cache
def routes() -> dict[str, CodeType]:
    """Every method of the HTTP gateway that is given a request and answers it."""
    found: dict[str, CodeType] = {}
    for module in pkgutil.walk_packages(http.__path__, f"{http.__name__}."):
        loaded = importlib.import_module(module.name)
        for _, kind in inspect.getmembers(loaded, inspect.isclass):
            if kind.__module__ == loaded.__name__:
                found |= {method.__qualname__: inspect.unwrap(method).__code__ for method in _answering(kind)}
    return found


def _answering(kind: type) -> list[object]:
    return [
        method
        for method in vars(kind).values()
        if inspect.isfunction(method)
        and _takes(method)
        and "Response" in str(method.__annotations__["return"])
    ]


def _takes(method: object) -> bool:
    given = {
        name: str(kind) for name, kind in getattr(method, "__annotations__", {}).items() if name != "return"
    }
    return any("Call" in kind or "Address" in kind or "Request" in kind for kind in given.values())


def code_of(verb: str) -> CodeType | None:
    """None for what is compiled, or is no function."""
    if verb in OPERATIONS:
        return getattr(OPERATIONS[verb][1], "__code__", None)
    return routes().get(verb)
