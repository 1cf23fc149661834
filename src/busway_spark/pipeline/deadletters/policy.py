"""What becomes of dead letters by themselves: a policy, read from a TOML file.

    create = true                      # make quarantine queues that are missing

    [[rule]]                           # the first rule that fits decides; what fits none is left alone
    reason = "Timeout"                 # of these, those that are given must hold
    fingerprint = "no answer within <n> s"
    entity = "orders"
    where = "deliveryCount > 3"        # SQL, as `--where` of `busway pipeline deadletters`
    budget = 5                         # so often it may be resubmitted
    backoff = "30s"                    # not at once: 30 s, 60 s, 120 s, …
    backoff_max = "1h"
    quarantine = "orders-quarantine"   # where it goes when its budget is used up; without it, it is left

How often a message was resubmitted is counted with the message itself, by the application properties COUNT and FIRST,
which are written in the step that resubmits it: whoever looks next, on whatever machine, sees it.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from busway.message.changed_payload import PROPERTY_MARK

#: Application properties: how often it was resubmitted, and when first (milliseconds since 1970).
COUNT: Final = "busway-resubmitted"
FIRST: Final = "busway-resubmitted-first"
#: Of what lies in quarantine: since when, and what its last dead letter was.
QUARANTINED: Final = "busway-quarantined"
LAST_REASON: Final = "busway-dead-letter-reason"
LAST_DESCRIPTION: Final = "busway-dead-letter-description"
LAST_SOURCE: Final = "busway-dead-letter-source"
#: The server schedules it so many milliseconds from its own now on.
DELAY: Final = "delay"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_TEXTS: Final = ("reason", "fingerprint", "entity", "where", "quarantine", "backoff", "backoff_max")
_BACKOFF_S_MAX: Final = 366 * 86_400
_DOUBLINGS_MAX: Final = 40
_RULES_MAX: Final = 1_000


class WrongPolicy(ValueError):
    """The policy cannot be understood; a sentence."""


@dataclass(frozen=True)
class PolicyRule:
    budget: int
    reason: str | None = None
    fingerprint: str | None = None
    entity: str | None = None
    where: str | None = None
    backoff_s: int = 0
    backoff_max_s: int = 86_400
    quarantine: str | None = None

    def delay_ms(self, count: int, identity: str) -> int:
        """Before the next try of a message that was resubmitted so often. Up to half of it is taken off by who it is,
        so that those who failed together do not come back together, and the same at every look."""
        if not self.backoff_s:
            return 0
        whole_s = min(self.backoff_s << min(count, _DOUBLINGS_MAX), self.backoff_max_s)
        chance = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4], "big") / 2**32
        return int(whole_s * 1000 * (1 - chance / 2))


@dataclass(frozen=True)
class Policy:
    rules: tuple[PolicyRule, ...]
    creates: bool = False

    def quarantines(self) -> list[str]:
        return list(dict.fromkeys(rule.quarantine for rule in self.rules if rule.quarantine is not None))

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Raises WrongPolicy."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WrongPolicy(f"{path} cannot be read: {error}") from error
        try:
            return cls.parse(text)
        except WrongPolicy as error:
            raise WrongPolicy(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Raises WrongPolicy."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise WrongPolicy(f"it is no TOML: {error}.") from error
        _check_names(found, ("create", "rule"), "A policy")
        creates, rules = found.get("create", False), found.get("rule", [])
        if not isinstance(creates, bool):
            raise WrongPolicy("create must be true or false.")
        if not isinstance(rules, list) or not rules:
            raise WrongPolicy("there is no [[rule]] in it.")
        if len(rules) > _RULES_MAX:
            raise WrongPolicy(f"it has {len(rules)} rules; at most {_RULES_MAX} are allowed.")
        return cls(tuple(_rule(at, each) for at, each in enumerate(rules, 1)), creates)


def _rule(at: int, found: object) -> PolicyRule:
    name = f"rule {at}"
    if not isinstance(found, dict):
        raise WrongPolicy(f"{name} must be a table, [[rule]].")
    _check_names(found, ("budget", *_TEXTS), name)
    for each in _TEXTS:
        if each in found and (not isinstance(found[each], str) or not found[each].strip()):
            raise WrongPolicy(f"{name}: {each} must be a text that is not empty.")
    budget = found.get("budget")
    if not isinstance(budget, int) or isinstance(budget, bool) or not 0 <= budget <= 1_000_000:
        raise WrongPolicy(f"{name}: budget must say how often a message may be resubmitted, 0 or more.")
    backoff_s = _seconds(name, "backoff", found.get("backoff", "0s"))
    backoff_max_s = _seconds(name, "backoff_max", found.get("backoff_max", "1d"))
    if backoff_max_s < backoff_s:
        raise WrongPolicy(f"{name}: backoff_max is shorter than backoff.")
    quarantine = found.get("quarantine")
    return PolicyRule(
        budget,
        found.get("reason"),
        found.get("fingerprint"),
        found.get("entity"),
        found.get("where"),
        backoff_s,
        backoff_max_s,
        None if quarantine is None else quarantine.strip("/"),
    )


def _check_names(found: Mapping[str, Any], known: tuple[str, ...], whose: str) -> None:
    wrong = next((name for name in found if name not in known), None)
    if wrong is not None:
        raise WrongPolicy(f"{whose} has no '{wrong[:80]}'; there are {', '.join(known)}.")


def _seconds(name: str, option: str, text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise WrongPolicy(f"{name}: {option} '{text[:40]}' is no time such as 30s, 5m, 2h or 1d.")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > _BACKOFF_S_MAX:
        raise WrongPolicy(f"{name}: {option} is longer than a year.")
    return seconds


# -- what is written into the message


def resubmission(
    rule: PolicyRule, count: int, first_ms: int | None, now_ms: int, identity: str
) -> dict[str, Any]:
    """Changes of a message that is resubmitted once more. `identity`: where it lies, and its number there."""
    changes: dict[str, Any] = {
        PROPERTY_MARK + COUNT: count + 1,
        PROPERTY_MARK + FIRST: now_ms if first_ms is None else first_ms,
    }
    delay_ms = rule.delay_ms(count, identity)
    return {**changes, DELAY: delay_ms} if delay_ms else changes


def quarantine(reason: str | None, description: str | None, source: str, now_ms: int) -> dict[str, Any]:
    """Changes of a message whose budget is used up: why it was dead-lettered, where, and since when it lies there."""
    return {
        PROPERTY_MARK + QUARANTINED: now_ms,
        PROPERTY_MARK + LAST_REASON: reason,
        PROPERTY_MARK + LAST_DESCRIPTION: description,
        PROPERTY_MARK + LAST_SOURCE: source,
    }
