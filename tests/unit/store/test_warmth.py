"""Which rows can be read without a thread."""

from busway.store.contract import FragmentKey
from busway.store.sqlite.reads import TouchedRuns
from tests.harness.manual_clock import ManualClock


def test_warmth_covers_what_was_touched_for_a_moment() -> None:
    clock = ManualClock()
    warmth = TouchedRuns(clock)
    fragment, other = FragmentKey(1), FragmentKey(2)
    assert warmth.last(fragment, 0, 10) is None
    warmth.note(fragment, 0, 10, 10)
    assert warmth.last(fragment, 0, 10) is None
    assert warmth.is_followed(fragment, 0, 10)
    assert not warmth.is_followed(fragment, 0, 0)
    warmth.note(fragment, 0, 20, 60)
    assert [warmth.last(fragment, 0, after) for after in (19, 20, 59, 60)] == [None, 60, 60, None]
    assert warmth.last(fragment, 1, 20) is None
    assert warmth.last(other, 0, 20) is None
    clock.advance(10)
    assert warmth.last(fragment, 0, 20) is None
    assert not warmth.is_followed(fragment, 0, 20)


def test_warmth_is_bounded() -> None:
    warmth = TouchedRuns(ManualClock())
    for key in range(10_000):
        warmth.note(FragmentKey(key), 0, 1, 5)
    assert len(warmth._runs) <= 256
    warmth.forget()
    assert warmth.last(FragmentKey(9_999), 0, 1) is None
