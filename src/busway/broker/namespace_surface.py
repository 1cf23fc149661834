"""DRAFT of signatures, to be replaced by `namespace.py` and `authorization.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from busway.broker.descriptions import AuthorizationRule, QueueDescription, RuntimeCounts
from busway.broker.limits import Limits


class Grant(Protocol):
    """A verified claim: who may do what below which path until when. Made by `authorization` only."""

    rule_name: str
    scope: tuple[str, ...]  # lower-cased path segments of `sr`; () is the whole namespace
    rights: frozenset[str]
    expires_at_ms: int


class Authorizer(Protocol):
    """authorization.py. ONE authorise() for every route."""

    def grant_of_token(self, token: str, audience: str) -> Grant:
        """Checks form, rule, signature, expiry, audience in this order (A-4…A-7). Raises AuthenticationFailed."""

    def grant_of_key(self, rule_name: str, key: str) -> Grant:
        """SASL PLAIN: a namespace rule's name and one of its keys. Raises AuthenticationFailed."""

    def authorise(self, grants: list[Grant], path: str, right: str) -> Grant:
        """The grant that allows `right` on `path` now, re-checked against the rules as they are now.
        Raises Unauthorized ("Unauthorized access. 'Send' claim(s) are required to perform this operation.")."""

    def is_valid(self, grant: Grant) -> bool:
        """Still good: not expired, its rule and key still exist (A-8, A-10)."""


class Namespace(Protocol):
    """namespace.py: the catalogue in memory, its queues, their stores and the one timer."""

    name: str
    limits: Limits
    authorizer: Authorizer

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def queue(self, path: str) -> object: ...  # -> Queue; raises EntityNotFound; case-insensitive (E-7)
    def descriptions(self) -> list[QueueDescription]: ...  # sorted by path
    def description(self, path: str) -> QueueDescription: ...
    async def create_queue(self, description: QueueDescription) -> QueueDescription: ...
    async def update_queue(self, description: QueueDescription) -> QueueDescription: ...
    async def delete_queue(self, path: str) -> None: ...
    async def counts(self, path: str) -> RuntimeCounts: ...
    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]: ...  # one store read for a page
    def rules(self) -> tuple[AuthorizationRule, ...]: ...  # namespace level
    async def set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None: ...
    def stores(self) -> list[dict[str, object]]: ...  # name, url, state, fragments
    def watch_rules(self, changed: Callable[[], None]) -> Callable[[], None]: ...  # returns the un-watch
    def next_deadline(self) -> float | None: ...  # monotonic
    def tick(self) -> None: ...  # locks, schedules, expiry, auto-delete: everything that time brings
