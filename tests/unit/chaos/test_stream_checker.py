"""The checker of event hubs is only worth something if it finds what is planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.history import FAIL, INFO, OK
from tests.chaos.stream_checker import (
    CHECKPOINTS,
    FOLLOWS,
    REPLAYS,
    Publication,
    Reading,
    Seen,
    StreamHistory,
    check_streams,
)


def seen(number: int, value: str, at_ms: int | None = None, came: float = 1.0) -> Seen:
    return Seen(number, str(number), 1000 + number if at_ms is None else at_ms, value, came)


def events(*values: str, first: int = 0) -> list[Seen]:
    return [seen(first + place, value) for place, value in enumerate(values)]


def sent(*values: str, outcome: str = OK, **fields: Any) -> Publication:
    return replace(Publication("p", values, outcome, 1.0), **fields)


def history(
    *publications: Publication, final: list[Seen], readings: tuple[Reading, ...] = ()
) -> StreamHistory:
    return StreamHistory(list(publications), list(readings), {"0": final})


def reading(kind: str, *values: str, first: int = 0) -> Reading:
    return Reading("r", kind, "0", events(*values, first=first))


def found(of: StreamHistory) -> set[str]:
    return set(check_streams(of).violations)


A, B, C = sent("a"), sent("b"), sent("c")


def test_what_may_happen_is_no_violation() -> None:
    assert found(history(A, B, final=events("a", "b"))) == set()
    assert found(history(A, sent("b", outcome=INFO), final=events("a"))) == set()
    assert found(history(sent("b", outcome=INFO), A, final=events("a", "b"))) == set()
    assert found(history(A, sent("b", outcome=FAIL), final=events("a"))) == set()
    assert found(history(sent("a", "b"), final=events("a", "b"))) == set()
    assert found(history(sent("a", attempts=2, outcome=INFO), final=events("a", "a"))) == set()
    readings = (reading(FOLLOWS, "b", first=1), reading(REPLAYS, "a", "b"), reading(REPLAYS, "a"))
    assert found(history(A, B, final=events("a", "b"), readings=readings)) == set()


def test_numbers_have_no_gap() -> None:
    assert found(history(A, B, final=[seen(0, "a"), seen(2, "b")])) == {"gap"}
    assert found(history(A, final=[seen(1, "a")])) == {"gap"}


def test_times_never_go_back() -> None:
    assert found(history(A, B, final=[seen(0, "a", 5), seen(1, "b", 4)])) == {"time went back"}
    assert found(history(A, B, final=[seen(0, "a", 5), seen(1, "b", 5)])) == set()


@pytest.mark.parametrize("other", [seen(0, "b"), seen(0, "a", 999), replace(seen(0, "a"), offset="7")])
def test_a_number_has_one_value_time_and_offset_for_ever(other: Seen) -> None:
    planted = history(A, final=events("a"), readings=(Reading("r", REPLAYS, "0", [other]),))
    assert "changed" in found(planted)


def test_two_readers_that_saw_different_events_are_noticed_though_both_are_gone() -> None:
    readings = (reading(REPLAYS, "a"), Reading("s", REPLAYS, "0", [seen(0, "b")]))
    planted = StreamHistory([A, B], list(readings), {"0": events("c", first=1)}, {"0": 1})
    assert "changed" in found(planted)


def test_what_was_seen_stays() -> None:
    planted = history(A, sent("b", outcome=INFO), final=events("a"), readings=(reading(FOLLOWS, "a", "b"),))
    assert found(planted) == {"vanished"}
    assert set(check_streams(planted, known_before=0.5).violations) == set()


def test_an_acknowledged_event_is_there() -> None:
    assert found(history(A, B, final=events("a"))) == {"lost"}
    late = sent("b", done=9.0)
    assert set(check_streams(history(A, late, final=events("a")), known_before=5.0).violations) == set()


def test_nothing_is_stored_twice() -> None:
    assert "doubled" in found(history(A, final=events("a", "a")))
    assert "doubled" in found(history(sent("a", attempts=2), final=events("a", "a", "a")))
    assert "doubled" in found(history(sent("a", attempts=2, is_idempotent=True), final=events("a", "a")))


def test_what_was_refused_is_not_there() -> None:
    assert found(history(sent("a", outcome=FAIL), final=events("a"))) == {"phantom"}


def test_what_nobody_sent_is_not_there() -> None:
    assert found(history(A, final=events("a", "z"))) == {"unexpected"}


def test_an_event_for_a_partition_is_in_no_other() -> None:
    assert found(history(sent("a", partition="1"), final=events("a"))) == {"elsewhere"}


def test_a_batch_is_stored_as_a_whole_and_side_by_side() -> None:
    assert "torn" in found(history(sent("a", "b", outcome=INFO), final=events("a")))
    assert "torn" in found(history(sent("a", "c"), B, final=events("a", "b", "c")))
    assert "torn" in found(history(sent("a", "b"), final=events("b", "a")))
    apart = StreamHistory([sent("a", "b")], [], {"0": events("a"), "1": events("b")})
    assert "torn" in found(apart)


def test_a_publisher_is_stored_in_its_order() -> None:
    assert found(history(A, B, final=events("b", "a"))) == {"out of order"}
    assert found(history(A, sent("b", outcome=INFO), final=events("b", "a"))) == {"out of order"}
    assert found(history(A, sent("b", publisher="q"), final=events("b", "a"))) == set()


def test_a_reader_leaves_nothing_out() -> None:
    gap = Reading("r", REPLAYS, "0", [seen(0, "a"), seen(2, "c")])
    assert found(history(A, B, C, final=events("a", "b", "c"), readings=(gap,))) == {"skipped"}


def test_a_reader_never_steps_back() -> None:
    back = Reading("r", REPLAYS, "0", [seen(1, "b"), seen(0, "a")])
    assert found(history(A, B, final=events("a", "b"), readings=(back,))) == {"stepped back"}


def test_a_follower_goes_on_where_it_was() -> None:
    readings = (reading(FOLLOWS, "a"), reading(FOLLOWS, "c", first=2))
    assert found(history(A, B, C, final=events("a", "b", "c"), readings=readings)) == {"skipped"}
    readings = (reading(FOLLOWS, "a", "b"), reading(FOLLOWS, "b", first=1))
    assert found(history(A, B, final=events("a", "b"), readings=readings)) == {"stepped back"}


def test_a_gap_is_explained_by_where_the_partition_began_then() -> None:
    gap = Reading("r", REPLAYS, "0", [seen(0, "a"), seen(2, "c")])
    planted = StreamHistory([A, B, C], [gap], {"0": events("c", first=2)}, {"0": 2})
    assert found(planted) == set()
    gap.begins[0] = 1
    assert found(planted) == {"skipped"}


def test_a_reader_with_checkpoints_misses_nothing() -> None:
    readings = (reading(CHECKPOINTS, "a"), reading(CHECKPOINTS, "c", first=2))
    assert found(history(A, B, C, final=events("a", "b", "c"), readings=readings)) == {"missed"}
    readings = (reading(CHECKPOINTS, "a", "b"), reading(CHECKPOINTS, "b", "c", first=1))
    assert found(history(A, B, C, final=events("a", "b", "c"), readings=readings)) == set()


def test_what_retention_took_is_not_lost() -> None:
    planted = StreamHistory([A, B], [], {"0": events("b", first=1)}, {"0": 1})
    assert found(planted) == set()
    planted.begins["0"] = 0
    assert found(planted) == {"gap", "lost"}


def test_counts_tell_how_much_was_done() -> None:
    planted = history(
        A, sent("b", outcome=INFO, attempts=3), final=events("a"), readings=(reading(REPLAYS, "a"),)
    )
    assert check_streams(planted).counts == {"sent": 1, "received": 1, "repeated": 2}
