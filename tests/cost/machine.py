"""How fast the machine is at this moment: CPU time means less on one that shares its caches and its clock rate with
others, and a bound in milliseconds would say more about its neighbours than about a request."""

from __future__ import annotations

from time import thread_time

#: What `_work` takes on the machine for which the bounds were set, when it has nothing else to do.
_USUAL_S = 0.0035
_TIMES = 3


def slowness() -> float:
    """1 on that machine and on faster ones, 2 on one that needs twice the time."""
    return max(1.0, min(_work() for _ in range(_TIMES)) / _USUAL_S)


def _work() -> float:
    """Dictionaries, small objects and calls, as in the server's own steps."""
    begun = thread_time()
    kept: dict[int, list[str]] = {}
    for n in range(20_000):
        kept.setdefault(n % 500, []).append(str(n))
        if n % 5_000 == 0:
            kept.clear()
    sum(len(text) for texts in kept.values() for text in texts)
    return thread_time() - begun
