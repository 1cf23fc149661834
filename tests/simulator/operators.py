"""A client that changes entities while the others use them: what `tests.changes` has, there and back again. A step
that is refused is tried again later; after a crash, or when nobody knows, it looks at what is there and goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.model.descriptions import PROPERTIES, SubscriptionDescription
from busway.model.entity_path import path_key
from busway.model.errors import BrokerError, EntityNotFound, StoreOutcomeUnknown
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, TrueFilter
from busway.streams.hub_descriptions import EventHubDescription
from tests.changes.changes import CHANGES, Change, Made, Step, Subject
from tests.simulator.administrator import NotedAdministrator
from tests.simulator.client import Client
from tests.simulator.operated import NEIGHBOURS, SUBJECTS, made_of, subject

if TYPE_CHECKING:
    from tests.simulator.world import World

#: Then it gives the change up and puts everything back.
_TRIES_MAX: Final = 40
#: At the end of a run, a second each.
_PUT_BACK_TRIES_MAX: Final = 200
#: Each seed has so many favourites among the changes.
_FAVOURITES: Final = 8


def possible_changes(path: str) -> list[Change]:
    usual = made_of(path)[0].description
    return [
        change
        for change in CHANGES
        if SUBJECTS[path] not in change.impossible
        and not change.is_by_links
        and change.sku == "Standard"
        and all(getattr(usual, name) == value for name, value in change.needs.items())
    ]


class Operator(Client):
    """One change at a time."""

    def __init__(self, world: World, paths: list[str]) -> None:
        super().__init__(world, "operator")
        self.paths = paths
        self.administrator = NotedAdministrator(world)
        names = [change.name for change in CHANGES if not change.is_by_links]
        self._favourites = self.chance.sample(names, min(_FAVOURITES, len(names)))
        self._change: Change | None = None
        self._subject: Subject | None = None
        self._steps: list[Step] = []
        self._tries = 0
        #: A step was begun, and what became of it is not known.
        self._is_unsure = False

    async def pause(self) -> None:
        """An operator has no hurry; but there is much to do."""
        await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.05, 0.4)) * self.chance.random())

    def begin(self) -> None:
        super().begin()
        if self._change is not None:
            self.journal.count("change interrupted by a crash")
            self._is_unsure = True

    def may_act(self) -> bool:
        """As long as there is anybody to disturb."""
        return self.world.operations_left > 0

    async def act(self) -> None:
        if self._change is None:
            self._choose()
        elif self._is_unsure:
            await self._look()
        elif self._steps and self._tries < _TRIES_MAX:
            await self._try_step()
        elif await self._put_back():
            self.note(f"has done {self._change.name}")
            self.journal.count(f"change: {self._change.name}")
            self._change = None

    def _choose(self) -> None:
        path = self.chance.choice(self.paths)
        possible = possible_changes(path)
        liked = [change for change in possible if change.name in self._favourites]
        moving = [change for change in possible if "Forward" in change.name]
        draw = self.chance.random()
        if moving and draw < 0.35:  # the entity is loaded anew each time, with everything that is on its way
            possible = moving
        elif liked and draw < 0.8:
            possible = liked
        self._change = self.chance.choice(possible)
        self._subject = subject(path, self.namespace)
        self._steps = list(self._change.steps())
        self._tries = 0
        self.note(f"begins {self._change.name} of {path}")

    async def _look(self) -> None:
        assert self._subject is not None
        # A topic's subscriptions are concerned as well, and a neighbour that comes and goes.
        paths = {self._subject.path, *(made.description.path for made in self._subject.made)}
        paths |= {each for each in NEIGHBOURS if each.split("/")[0] == self._subject.path.split("/")[0]}
        if all(self.administrator.look(path) for path in sorted(paths)):
            self._is_unsure = False

    async def _try_step(self) -> None:
        assert self._subject is not None
        self._slow_down()
        self.world.is_changing = True
        try:
            await self._steps[0](self.administrator, self._subject)
        except StoreOutcomeUnknown:
            self._is_unsure = True
            self._tries += 1
        except EntityNotFound:  # idle for too long, it was deleted
            self._steps = []
        except BrokerError:
            self._tries += 1
            await asyncio.sleep(self.chance.random() * 0.5)
        else:
            self._steps.pop(0)
            self._tries = 0
        finally:
            self.world.is_changing = False

    def _slow_down(self) -> None:
        """A step is over within a commit or two: first one of the catalogue's home, then those of the stores that the
        entity lies in. Now and then these take long enough for others to come between."""
        assert self._subject is not None
        row = self.namespace.contents.entities.rows.get(path_key(self._subject.path))
        if row is None or self.chance.random() < 0.5:
            return
        home_s = self.chance.choice((0.005, 0.03))
        for store in self.world.stores:
            if store.name in row.store_names:
                hang_s = home_s + self.chance.choice((0.01, 0.05, 0.3))
            elif store.name == self.namespace.contents.catalogue.home.name:
                hang_s = home_s
            else:
                continue
            store.mood.hang_s = max(store.mood.hang_s, hang_s)

    # -- as it was

    async def finish(self) -> None:
        """The run is over: whatever is under way is put back."""
        for _ in range(_PUT_BACK_TRIES_MAX):
            if self._change is None:
                return
            self._steps = []
            if self._is_unsure:
                await self._look()
            elif await self._put_back():
                self._change = None
            await asyncio.sleep(1.0)
        self.journal.find("cannot be changed back", f"{self._change} of {self._subject}")

    async def _put_back(self) -> bool:
        """True when everything about the subject is as usual."""
        assert self._subject is not None
        try:
            for path in NEIGHBOURS:
                if self.namespace.exists(path):
                    await self.administrator.delete(path)
            for made in self._subject.made:
                await self._put_back_one(made)
        except StoreOutcomeUnknown:
            self._is_unsure = True
            return False
        except BrokerError:
            await asyncio.sleep(self.chance.random())
            return False
        return True

    async def _put_back_one(self, made: Made) -> None:
        usual = made.description
        assert not isinstance(usual, EventHubDescription)
        path = usual.path
        if not self.namespace.exists(path):
            await self.administrator.delete(path)  # so that it is known to be another one
            await self.administrator.create(usual, made.rules)
        present = self.namespace.description(path)
        wrong = {
            entry.field: getattr(usual, entry.field)
            for entry in PROPERTIES[type(present)]
            if getattr(present, entry.field) != getattr(usual, entry.field)
        }
        if wrong:
            await self.administrator.update(path, **wrong)
        if isinstance(present, SubscriptionDescription):
            await self._put_back_rules(path, made.rules or (Rule(DEFAULT_RULE_NAME, TrueFilter()),))

    async def _put_back_rules(self, path: str, usual: tuple[Rule, ...]) -> None:
        present = {rule.name: rule for rule in self.namespace.rules.of(path)}
        for rule in usual:
            if rule.name not in present:
                await self.administrator.add_rule(path, rule)
            elif present[rule.name].filter != rule.filter:
                await self.administrator.replace_rule(path, rule)
        for name in sorted(present.keys() - {rule.name for rule in usual}):
            await self.administrator.remove_rule(path, name)
