"""How many dead letters are shared out to tasks, without a server."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import pairwise

import pytest

from busway_spark.pipeline.deadletters.columns import SPANS_MAX, WHOLE, WIDTH, spans
from busway_spark.servicebus.options import NUMBER_MAX


def spans_with(numbers: list[int]) -> tuple[list[tuple[int, int]], int]:
    """The spans, and how many questions they took."""
    asked: list[int] = []

    async def look(number: int) -> int | None:
        asked.append(number)
        at = bisect_left(numbers, number)
        return numbers[at] if at < len(numbers) else None

    return asyncio.run(spans(look)), len(asked)


@pytest.mark.parametrize(
    "numbers",
    [[], [7], list(range(1, 5_000)), [1, 1 << 48], [1, 500_000, 3 << 48], [5 << 48, 6 << 48]],
    ids=["none", "one", "few", "two fragments", "some fragments", "without the first"],
)
def test_few_or_partitioned_are_one_walk(numbers: list[int]) -> None:
    """Dead letters: the format itself has a task for each fragment; few are not worth more."""
    found, questions = spans_with(numbers)
    assert found == [WHOLE]
    assert questions <= 3


@pytest.mark.parametrize("last", [WIDTH + 1, 1_000_000, 900_000_000_000])
@pytest.mark.parametrize("first", [1, 77_777])
def test_many_are_shared_out_without_a_gap(first: int, last: int) -> None:
    """Dead letters: from nothing to the last number there can be, in spans of about one width."""
    numbers = sorted({*range(first, first + 300), *range(first, last, max(1, last // 1_000)), last + first})
    found, questions = spans_with(numbers)
    assert (found[0][0], found[-1][1]) == (0, NUMBER_MAX)
    assert all(after[0] == before[1] + 1 for before, after in pairwise(found))
    assert 2 <= len(found) <= SPANS_MAX
    assert questions <= 50
    shares = [sum(begin <= number <= end for number in numbers) for begin, end in found]
    assert max(shares) < len(numbers)
