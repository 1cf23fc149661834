"""What a read has brought, in words: for the log, when working it off took long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from busway.loop_entries import shown

if TYPE_CHECKING:
    from busway.amqp.events import Event
    from busway.amqp.link import Link
    from busway.gateway.amqp.links.link_host import AttachedLink

#: Kinds of events that are named.
_KINDS_MAX: Final = 3


def told_events(events: list[Event]) -> str:
    """How many of which kind at which entity, the most frequent ones first."""
    counts: dict[str, int] = {}
    for event in events:
        many: list[object] | None = getattr(event, "deliveries", None)
        word = f"{type(event).__name__}{_place(event)}"
        counts[word] = counts.get(word, 0) + (1 if many is None else len(many))
    few = sorted(counts.items(), key=lambda entry: -entry[1])[:_KINDS_MAX]
    words = ", ".join(f"{count:,} × {word}" for word, count in few)
    more = f" and {len(counts) - len(few):,} other kinds" if len(counts) > len(few) else ""
    return f"AMQP input: {words or 'frames'}{more}"


def _place(event: Event) -> str:
    link: Link | None = getattr(event, "link", None)
    owner = None if link is None else cast("AttachedLink | None", link.owner)
    return "" if owner is None else f" at {shown(owner.node.path)}"
