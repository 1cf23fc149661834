"""From the address texts that clients write to the nodes they mean (E-8), and the entity that a session is pinned to.

One entity, many spellings: `orders` (JS, Go, Java), `/orders` with percent-escapes (.NET),
`amqps://host:5671/orders` (Python), as text or as UTF-8 bytes, in any case. The text itself is kept by the link
and echoed letter for letter, because clients compare it; only what it points at is worked out here.

Inside an event hub (H-10…H-13, H-20), where keywords and names are compared without their case:

  hub                                     the hub: the broker chooses the partition
  hub/Partitions/n                        one partition, for publishers
  hub/Publishers/p                        a publisher of that name
  hub/ConsumerGroups/g/Partitions/n       one partition, for readers

Cross-entity mode of an AMQP session (`SessionUse`): all it receives comes from one entity (TX-4, TX-22). Clients
that work in transactions across entities open a session for that alone, and on it their control link before any
other. So the first link of a session says what the session is for. In this mode the first receiver, the first
message that is sent, or the first transaction that is discharged pins the session to its queue or topic for the
rest of the session's life: receivers elsewhere are refused whether or not a transaction is open, senders are not.
Clients that open a control link beside the links they have are not pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from busway.amqp.performatives import Coordinator, Source, Target
from busway.model.authorization import Segments, path_segments
from busway.model.entity_path import (
    DEAD_LETTER_KEYWORD,
    MANAGEMENT_KEYWORD,
    TRANSFER_KEYWORD,
    EntityAddress,
    path_key,
    topic_path_of,
)
from busway.model.errors import BadArgument, InvalidOperation

if TYPE_CHECKING:
    from busway.amqp.session import Session

#: Longer than any address of an entity that can exist, host and escapes included.
ADDRESS_CHARACTERS_MAX: Final = 2_048

_CBS_KEYWORD: Final = "$cbs"
_PARTITIONS: Final = "partitions"
_PUBLISHERS: Final = "publishers"
_GROUPS: Final = "consumergroups"


class NodeKind(Enum):
    CBS = "$cbs"
    MANAGEMENT = "management node of an entity"
    ENTITY = "entity or sub-queue"
    COORDINATOR = "transaction coordinator"


@dataclass(frozen=True)
class LinkNode:
    """What a link's address points at."""

    kind: NodeKind
    address: EntityAddress
    #: TX-3: the entity that a sender means when it sends by way of this one. Rights are needed on both.
    destination: LinkNode | None = None

    @property
    def path(self) -> str:
        """The whole path inside the namespace, for rights, sentences and the log."""
        address = self.address
        parts = [address.path] if address.path else []
        if address.transfer_dead_letter:
            parts += [TRANSFER_KEYWORD, DEAD_LETTER_KEYWORD]
        elif address.dead_letter:
            parts.append(DEAD_LETTER_KEYWORD)
        if address.management:
            parts.append(MANAGEMENT_KEYWORD)
        return "/".join(parts)


def paths_of(node: LinkNode) -> tuple[Segments, ...]:
    """Where a link needs rights."""
    paths = [node.path] if node.destination is None else [node.path, node.destination.path]
    return tuple(segments for path in paths if (segments := path_segments(path)) is not None)


CBS_NODE: Final = LinkNode(NodeKind.CBS, EntityAddress(_CBS_KEYWORD))
#: It has no address: a link names it by the type of its target.
COORDINATOR_NODE: Final = LinkNode(NodeKind.COORDINATOR, EntityAddress("$coordinator"))


def path_of(text: str) -> str:
    """The path inside the namespace: without scheme, host, port, query, outer slashes and percent-escapes.
    Raises BadArgument for what is no text once the escapes are undone."""
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise BadArgument("The address is too long.")
    _, separator, after = text.partition("://")
    path = after.partition("/")[2] if separator else text
    path = path.partition("?")[0].strip("/")
    if "%" not in path:
        return path
    try:
        return unquote(path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise BadArgument("The address has percent-escapes that are not UTF-8.") from None


def node_at(text: str) -> LinkNode:
    """The node that an address means. Raises BadArgument when it can mean none."""
    path = path_of(text)
    if path.lower() == _CBS_KEYWORD:
        return CBS_NODE
    address = EntityAddress.parse(path)
    return LinkNode(NodeKind.MANAGEMENT if address.management else NodeKind.ENTITY, address)


def text_of(terminus: Source | Target | Coordinator | None) -> str | None:
    """The address text of a source or target; Python's clients write some of them as UTF-8 bytes."""
    if not isinstance(terminus, Source | Target):
        return None
    address = terminus.address
    if isinstance(address, bytes):
        try:
            return address.decode()
        except UnicodeDecodeError:
            raise BadArgument("The address of the link is not UTF-8.") from None
    if address is None or isinstance(address, str):
        return address
    raise BadArgument("The address of a link must be a string.")


@dataclass(frozen=True)
class EventAddress:
    """What a path means when its first segment is the name of a hub. Names as they were written."""

    hub_path: str
    partition_id: str | None = None
    publisher: str | None = None
    group: str | None = None


def event_address(path: str) -> EventAddress | None:
    """None when a path means nothing inside a hub, however the hub is called."""
    hub, *rest = path.split("/")
    if hub == "" or "" in rest:
        return None
    keywords = [segment.lower() for segment in rest[::2]]
    if not rest:
        return EventAddress(hub)
    if len(rest) == 2 and keywords == [_PARTITIONS]:
        return EventAddress(hub, partition_id=rest[1])
    if len(rest) == 2 and keywords == [_PUBLISHERS]:
        return EventAddress(hub, publisher=rest[1])
    if len(rest) == 4 and keywords == [_GROUPS, _PARTITIONS]:
        return EventAddress(hub, group=rest[1], partition_id=rest[3])
    return None


def hub_path_of(path: str) -> str:
    """The name of the hub that a path would lie in."""
    return path.partition("/")[0]


_OTHER_ENTITY: Final = "Local transactions cannot span multiple top-level entities such as queue or topic."


class SessionUse:
    """What a session is for; kept in `Session.owner`."""

    __slots__ = ("_is_cross_entity", "_top_key")

    def __init__(self, first_node: LinkNode) -> None:
        self._is_cross_entity = first_node.kind is NodeKind.COORDINATOR
        #: What it is pinned to.
        self._top_key: str | None = None

    def check_receiver(self, node: LinkNode) -> None:
        """Raises InvalidOperation for a receiver that may not stand here."""
        if self._top_key is not None and self._top_key != _top_key(node.address.path):
            raise InvalidOperation(_OTHER_ENTITY)

    @property
    def is_free(self) -> bool:
        """In this mode, and not pinned yet."""
        return self._is_cross_entity and self._top_key is None

    def receiver_accepted(self, node: LinkNode) -> None:
        self.took_place_at(node.address.path)

    def took_place_at(self, path: str) -> None:
        """A receiver stands there, a message was sent there, or a transaction made: the first one counts."""
        if self.is_free:
            self._top_key = _top_key(path)


def use_of(session: Session, node: LinkNode) -> SessionUse:
    """`node` is what a link that is attached now is for."""
    if not isinstance(session.owner, SessionUse):
        session.owner = SessionUse(node)
    return session.owner


def _top_key(path: str) -> str:
    return path_key(topic_path_of(path))
