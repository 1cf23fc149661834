"""The catalogue of a bus that is copied to other stores: they have other names and addresses, and their fragments
other keys. Nothing else changes, and what this version does not know of a row is kept. A row that it does not know at
all is refused: nobody could say what it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway.broker.namespace.namespace import (
    DECIDED_KEY,
    ENTITY_PREFIXES,
    NO_FRAGMENT,
    STORE_PREFIX,
    TAKEN_OVER_PREFIX,
    fragments_named,
)
from busway.staging.decisions import DECISION_PREFIX
from busway.staging.stage_table import NOTE_PREFIX
from busway.store.contract import FragmentKey, StoreError
from busway.streams.hub_table import GROUP_PREFIX, HUB_PREFIX


@dataclass(frozen=True)
class NewHome:
    """Of a store: its name and address there, and the keys of its fragments."""

    name: str
    url: str
    fragments: Mapping[int, FragmentKey]


_SEPARATORS: Final = (",", ":")


class CatalogueMap:
    """`homes`: by the names that the stores had."""

    def __init__(self, homes: Mapping[str, NewHome]) -> None:
        self._homes = homes

    def rows(self, rows: Mapping[str, str]) -> dict[str, str]:
        """Of the catalogue. Raises StoreError."""
        return dict(self._row(key, text) for key, text in rows.items())

    def notes(self, store: str, notes: Mapping[str, str]) -> dict[str, str]:
        """What lies beside a store's copy of it. Raises StoreError."""
        return {key: self._note(store, key, text) for key, text in notes.items()}

    def _row(self, key: str, text: str) -> tuple[str, str]:
        prefix = key[: key.find(":") + 1]
        if prefix == HUB_PREFIX:
            return key, self._hub(key, text)
        if prefix == GROUP_PREFIX:
            return key, text
        if fragments_named(key, text) is None:
            raise StoreError(f"The catalogue has a row '{key}' that this version does not know.")
        if prefix == STORE_PREFIX:
            home = self._home(key, key.removeprefix(prefix))
            return prefix + home.name, _written({**json.loads(text), "url": home.url})
        if prefix == TAKEN_OVER_PREFIX:
            return prefix + self._home(key, key.removeprefix(prefix)).name, text
        return key, self._entity(key, text) if prefix in ENTITY_PREFIXES else text

    def _entity(self, key: str, text: str) -> str:
        data = json.loads(text)
        for share in data.get("shares", [data]):
            home = self._home(key, share["store"])
            main, dead_letter = self._fragment(key, home, share["main"]), share["dead_letter"]
            if dead_letter != NO_FRAGMENT:
                dead_letter = self._fragment(key, home, dead_letter)
            share.update(store=home.name, main=main, dead_letter=dead_letter)
        if "doubts" in data:
            data["doubts"] = [found for doubt in data["doubts"] if (found := self._doubt(key, *doubt))]
        return _written(data)

    def _hub(self, key: str, text: str) -> str:
        data = json.loads(text)
        for share in data["logs"]:
            home = self._home(key, share["store"])
            share.update(store=home.name, log=self._fragment(key, home, share["log"]))
        return _written(data)

    def _doubt(self, key: str, store: str, fragment: int, number: int, gone_to: str) -> list[Any] | None:
        """None: nobody has the fragment any more."""
        home = self._home(key, store)
        found = home.fragments.get(fragment)
        return None if found is None else [home.name, found, number, self._home(key, gone_to).name]

    def _note(self, store: str, key: str, text: str) -> str:
        if key == DECIDED_KEY:
            return text
        data = json.loads(text)
        if key.startswith(DECISION_PREFIX):
            stages = data.get("stages", {})
            for stage, names in stages.items():
                stages[stage] = [self._home(key, name).name for name in names]
        elif key.startswith(NOTE_PREFIX):
            home = self._home(key, store)
            for entity in data["entities"]:
                entity["logs"] = [
                    [index, home.fragments.get(target, NO_FRAGMENT), self._fragment(key, home, log)]
                    for index, target, log in entity["logs"]
                ]
        else:
            raise StoreError(f"The store {store} has a note '{key}' that this version does not know.")
        return _written(data)

    def _home(self, key: str, store: str) -> NewHome:
        home = self._homes.get(store)
        if home is None:
            raise StoreError(f"The row '{key}' names the store {store}, which the namespace does not know.")
        return home

    @staticmethod
    def _fragment(key: str, home: NewHome, fragment: int) -> FragmentKey:
        found = home.fragments.get(fragment)
        if found is None:
            raise StoreError(
                f"The row '{key}' names a fragment that is not there. Was a store's file removed or replaced?"
            )
        return found


def _written(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=_SEPARATORS)
