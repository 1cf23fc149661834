"""A value inside a JSON file together with its path, so that every complaint names the place.

`UserConfig.Namespaces[0].Queues[1].Properties.LockDurration: unknown key; did you mean 'LockDuration'?`
"""

import difflib
import json
from collections.abc import Iterable
from typing import Final

_TEXT_CHARACTERS_MAX: Final = 16 * 1024 * 1024
_SHOWN_CHARACTERS_MAX: Final = 80


class ConfigError(Exception):
    """The configuration file cannot be used; the text names the place and the remedy."""


class Node:
    """Where we are in the file, and what is there."""

    def __init__(self, value: object, path: str) -> None:
        self.value = value
        self.path = path

    @classmethod
    def parse(cls, text: str) -> "Node":
        if len(text) > _TEXT_CHARACTERS_MAX:
            raise ConfigError("The file is larger than 16 MiB.")
        try:
            value = json.loads(
                text.removeprefix("\ufeff"), object_pairs_hook=_unique, parse_constant=_no_constant
            )
        except json.JSONDecodeError as error:
            raise ConfigError(f"Line {error.lineno}, column {error.colno}: {error.msg}.") from error
        except (RecursionError, ValueError) as error:
            raise ConfigError(f"The file is no plain JSON: {error}.") from error
        return cls(value, "")

    def members(self, known: Iterable[str]) -> dict[str, "Node"]:
        """The members of an object; a key that is not known is an error."""
        names = list(known)
        if not isinstance(self.value, dict):
            raise self.error("an object ({ … }) is expected")
        for key in self.value:
            if key not in names:
                raise self._member(key).unknown(names)
        return {key: self._member(key) for key in self.value}

    def any_members(self) -> dict[str, "Node"]:
        """The members of an object whose keys are the user's own names."""
        return (
            {key: self._member(key) for key in self.value}
            if isinstance(self.value, dict)
            else self.members(())
        )

    def entries(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self.error("a list ([ … ]) is expected")
        return [Node(value, f"{self.path}[{index}]") for index, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.error("a text in quotes is expected")
        return self.value

    def whole_number(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.error("a whole number is expected")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error("true or false is expected")
        return self.value

    def error(self, complaint: str) -> ConfigError:
        return ConfigError(f"{self.path or 'The file'}: {complaint}.")

    def unknown(self, names: list[str], remark: str = "") -> ConfigError:
        key = self.path.rpartition(".")[2]
        lower = {name.lower(): name for name in names}
        near = difflib.get_close_matches(key.lower()[:_SHOWN_CHARACTERS_MAX], list(lower), n=1, cutoff=0.6)
        advice = f"did you mean '{lower[near[0]]}'?" if near else f"known here: {', '.join(names) or 'none'}."
        return ConfigError(f"{self.path}: unknown key; {remark}{advice}")

    def _member(self, key: str) -> "Node":
        shown = key if len(key) <= _SHOWN_CHARACTERS_MAX else key[:_SHOWN_CHARACTERS_MAX] + "…"
        return Node(
            self.value[key] if isinstance(self.value, dict) else None, f"{self.path}.{shown}".lstrip(".")
        )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"The key '{twice[:_SHOWN_CHARACTERS_MAX]}' comes twice in one object.")
    return found


def _no_constant(name: str) -> object:
    raise ConfigError(f"{name} is not a JSON value.")
