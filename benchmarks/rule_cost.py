"""What rules cost per message, without any broker: `python -m benchmarks.rule_cost`.

The subject is a dictionary, so that the numbers are those of the rules. Each is the best of several rounds.
"""

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from busway.rules.compiled_rule import compiled_filter
from busway.rules.rule import CorrelationFilter, Rule, SqlFilter, TrueFilter
from busway.rules.selection import Selection
from busway.rules.subject import MISSING, Missing, Subject, Value

_ROUNDS: Final = 5
_FILTERS: Final = (
    "color = 'red' AND size > 10",
    "color = 'blue' AND size = 10",
    "sys.Label LIKE '%bus%'",
    "color IN ('green', 'blue', 'red')",
    "NOT (color = 'green') AND size * 2 + 1 = 25",
)


class BenchedMessage(Subject):
    def __init__(self, label: str) -> None:
        self._user: dict[str, Value] = {"color": "red", "size": 12}
        self._system: dict[str, Value] = {"Label": label}

    def user(self, folded_name: str) -> Value | Missing:
        return self._user.get(folded_name, MISSING)

    def system(self, name: str) -> Value:
        return self._system.get(name)


def main() -> None:
    message = BenchedMessage("r7")
    for text in _FILTERS:
        _report(text, _cost_ns(compiled_filter(SqlFilter(text), _no_id).matches, message, 100_000))
    selection = Selection(_no_id)
    selection.add("subscription", Rule("$Default", TrueFilter()))
    _report("a true filter", _cost_ns(selection.matching, message, 50_000))
    for count in (1, 1_000, 100_000):
        selection = Selection(_no_id)
        for number in range(count):
            rule = Rule(f"rule {number}", CorrelationFilter(label=f"r{number + 7}"))
            selection.add(f"subscription {number % 2_000}", rule)
        _report(f"{count:,} correlation filters", _cost_ns(selection.matching, message, 20_000))
    for title, text in (("with an anchor", "color = 'c{}' AND size > 10"), ("without", "size > {}")):
        selection = Selection(_no_id)
        for number in range(2_000):
            selection.add(f"subscription {number}", Rule("rule", SqlFilter(text.format(number + 20))))
        _report(f"2,000 SQL filters {title}", _cost_ns(selection.matching, message, 200))


def _no_id() -> UUID:
    return UUID(int=0)


def _cost_ns(work: Callable[[BenchedMessage], object], message: BenchedMessage, times: int) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(times):
            work(message)
        best = min(best, (time.perf_counter() - start) / times)
    return best * 1e9


def _report(title: str, cost_ns: float) -> None:
    print(f"{title:50} {cost_ns:12,.0f} ns")


if __name__ == "__main__":
    main()
