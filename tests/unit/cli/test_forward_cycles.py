"""Forwards that lead back."""

import pytest

from busway.cli.entities import cycle_through


@pytest.mark.parametrize(
    ("start", "forwards", "way"),
    [
        ("a", {"a": ["b"], "b": []}, None),
        ("a", {"a": ["a"]}, ["a", "a"]),
        ("a", {"a": ["b"], "b": ["c"], "c": ["A"]}, ["a", "b", "c", "A"]),
        ("a", {"a": ["b"], "b": ["c"], "c": ["b"]}, None),
        ("a", {"a": ["b", "c"], "b": ["d"], "d": ["a"], "c": ["a"]}, ["a", "c", "a"]),
        ("a", {"a": ["", "gone"]}, None),
        (
            "t/Subscriptions/s",
            {"t": ["t/Subscriptions/s"], "t/Subscriptions/s": ["q"], "q": ["t"]},
            ["t/Subscriptions/s", "q", "t", "t/Subscriptions/s"],
        ),
    ],
)
def test_the_shortest_way_back_is_found(
    start: str, forwards: dict[str, list[str]], way: list[str] | None
) -> None:
    """F-14: also to itself, through topics, whatever the case of names."""
    assert cycle_through(start, forwards) == way
