"""The administrator of the simulated namespace: every change is written down with what it leads to."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING

from busway.model.descriptions import Description, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.durations import FOREVER_MS
from busway.model.errors import BrokerError
from busway.rules.rule import Rule
from tests.changes.change import Entity
from tests.changes.in_process import InProcess
from tests.simulator.journal import Call, Changed, StateWrite
from tests.simulator.topology import DEDUPLICATED, SESSION_IDS, SESSIONS

if TYPE_CHECKING:
    from tests.simulator.world import World

_KINDS = (QueueDescription, TopicDescription, SubscriptionDescription)


class NotedAdministrator:
    """An `Administrator` of `tests.changes`. Refused calls raise BrokerError, as those of the namespace do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._journal = world.journal

    def _bus(self) -> InProcess:
        """After a crash it is another one."""
        return InProcess(self._world.namespace, None, self._world.entropy)

    async def description(self, path: str) -> Description:
        return self._world.namespace.description(path)

    async def rules(self, path: str) -> list[Rule]:
        return self._world.namespace.rules.of(path)

    # -- entities

    async def update(self, path: str, **properties: object) -> None:
        description = replace(await self.description(path), **properties)  # type: ignore[arg-type]
        change = self._change("update", path)
        change.description = description
        moves_window = "duplicate_detection_history_time_window_ms" in properties
        if moves_window:
            self._forget_ids(path)
        if description.auto_delete_on_idle_ms < FOREVER_MS:
            self._change("delete", path).done = change.invoked  # from now on, at any time
        await self._noted([change], self._bus().update(path, **properties))
        if moves_window:
            self._forget_ids(path)

    async def create(self, description: Entity, rules: tuple[Rule, ...] = ()) -> None:
        assert isinstance(description, _KINDS)
        change = self._change("create", description.path)
        change.description, change.rules = description, rules
        await self._noted([change], self._bus().create(description, rules))
        self._forget_ids(description.path)
        self._forget_numbers(description.path)

    async def delete(self, path: str) -> None:
        """A topic goes with its subscriptions."""
        below = [other for other in self._world.timeline.paths() if other.startswith(f"{path}/")]
        changes = [self._change("delete", each) for each in (path, *below)]
        for each in (path, *below):
            self._forget_ids(each)
            self._forget_numbers(each)
        writes: list[Call] = []
        if path in SESSIONS:
            states = [StateWrite(*self._now(), path, session_id, None) for session_id in SESSION_IDS]
            self._journal.states += states
            writes += states
        await self._noted([*changes, *writes], self._bus().delete(path))

    # -- rules

    async def add_rule(self, path: str, rule: Rule) -> None:
        change = self._change("add-rule", path)
        change.rules = (rule,)
        self._forget_ids(path)
        await self._noted([change], self._bus().add_rule(path, rule))
        self._forget_ids(path)

    async def replace_rule(self, path: str, rule: Rule) -> None:
        change = self._change("replace-rule", path)
        change.rules = (rule,)
        self._forget_ids(path)
        await self._noted([change], self._bus().replace_rule(path, rule))
        self._forget_ids(path)

    async def remove_rule(self, path: str, name: str) -> None:
        change = self._change("remove-rule", path)
        change.name = name
        self._forget_ids(path)
        await self._noted([change], self._bus().remove_rule(path, name))
        self._forget_ids(path)

    # -- the rest

    async def rotate_keys(self, path: str) -> None:
        await self._noted([], self._bus().rotate_keys(path))

    async def disable_store(self, name: str) -> None:
        await self._noted([], self._bus().disable_store(name))

    async def enable_store(self, name: str) -> None:
        await self._noted([], self._bus().enable_store(name))

    def look(self, path: str) -> bool:
        """What is there for certain. False while nobody can tell: the catalogue's home is away."""
        namespace = self._world.namespace
        if not namespace.contents.catalogue.home.is_open:
            return False
        change = self._change("look", path)
        if namespace.exists(path):
            change.description = namespace.description(path)
            if isinstance(change.description, SubscriptionDescription):
                change.rules = tuple(namespace.rules.of(path))
        self._journal.end(change, None, f"look {path}")
        return True

    # -- writing it down

    def _now(self) -> tuple[float, int]:
        return self._journal.now(), self._journal.life

    def _change(self, verb: str, path: str) -> Changed:
        change = Changed(*self._now(), verb, path)
        self._journal.changes.append(change)
        return change

    async def _noted(self, changes: list[Call], doing: Awaitable[None]) -> None:
        problem: BrokerError | None = None
        call = Call(*self._now())
        self._journal.others.append(call)
        what = "step"
        for change in changes[:1]:
            if isinstance(change, Changed):
                what = f"step {change.verb} {change.path}"
                self._journal.note(f"operator begins {what}")
        try:
            await doing
        except BrokerError as error:
            problem = error
        self._journal.end(call, problem, what)
        for change in changes:
            change.done, change.result, change.error = call.done, call.result, call.error
        if problem is not None:
            raise problem

    def _forget_ids(self, path: str) -> None:
        """What detects duplicates gets other ids, so that what was known before says nothing: a message that was sent
        again is dropped, also where another subscription would want it by now."""
        sent_to = path.split("/")[0]
        if sent_to in DEDUPLICATED:
            self._world.id_ranges[sent_to] = self._world.id_ranges.get(sent_to, 0) + 1

    def _forget_numbers(self, path: str) -> None:
        """Those of the deferred: another entity has the same ones."""
        for is_dead in (False, True):
            self._world.deferred.pop((path, is_dead), None)
