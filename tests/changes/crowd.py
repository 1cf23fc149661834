"""Who works in a cell: the clients of each traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.changes.client import Client
from tests.changes.hub_clients import Follower, Publisher
from tests.changes.kinds import HUB
from tests.changes.receivers import (
    Changeable,
    Consumer,
    Deferrer,
    Deleter,
    Heir,
    Mortician,
    Sleepy,
    Visitor,
)
from tests.changes.senders import Batcher, Doubter, Hasty, Scheduler, Sender
from tests.changes.session_receivers import (
    SessionChanger,
    SessionConsumer,
    SessionDeferrer,
    SessionDeleter,
    SessionMortician,
    SessionSleepy,
    SessionSpeaker,
)
from tests.changes.stagers import Stager
from tests.changes.traffic import VISITS
from tests.changes.transactors import SessionTransactor, Transactor

if TYPE_CHECKING:
    from tests.changes.world import World

_SENDERS: Final[dict[str, type[Sender]]] = {
    "batch": Batcher,
    "staging": Stager,
    "scheduled": Scheduler,
    "duplicates": Doubter,
    "expiry": Hasty,
}
_RECEIVERS: Final[dict[str, tuple[type[Consumer], ...]]] = {
    "send": (Consumer,),
    "batch": (Consumer,),
    "staging": (Consumer,),
    "scheduled": (Consumer,),
    "duplicates": (Consumer,),
    "peek-lock": (Changeable, Changeable),
    "receive-and-delete": (Deleter, Deleter),
    "deferral": (Deferrer, Deferrer),
    "forwarding in": (Consumer, Consumer),
    "dead-lettering": (Mortician,),
    "expiry": (Sleepy,),
    VISITS: (Visitor, Visitor),
}
_WITH_SESSIONS: Final[dict[type[Consumer], type[SessionConsumer]]] = {
    Consumer: SessionConsumer,
    Changeable: SessionChanger,
    Deleter: SessionDeleter,
    Deferrer: SessionDeferrer,
    Mortician: SessionMortician,
    Sleepy: SessionSleepy,
}


def crowd_of(world: World) -> list[Client]:
    traffic = world.cell.traffic.name
    if world.cell.kind == HUB:
        publishers = [Publisher(world, f"publisher-{number}") for number in range(2)]
        return [*publishers, *(Follower(world, f"follower-{partition}", partition) for partition in "01")]
    sender = _SENDERS.get(traffic, Sender)
    clients: list[Client] = [sender(world, f"sender-{number}") for number in range(2)]
    here = world.receive_path
    if traffic == "sessions":
        clients += [SessionSpeaker(world, f"speaker-{number}", here) for number in range(2)]
        return clients
    if traffic == "forwarding out":
        clients += [Consumer(world, f"at {path}", path) for path in world.subject.targets]
        receiver = SessionConsumer if world.has_sessions else Consumer
        return [*clients, receiver(world, "at the source", here)]
    if traffic == "transactions":
        transactor = SessionTransactor if world.has_sessions else Transactor
        return [*clients[:1], *(transactor(world, f"transactor-{number}", here) for number in range(2))]
    for number, kind in enumerate(_RECEIVERS[traffic]):
        wanted = _WITH_SESSIONS[kind] if world.has_sessions else kind
        clients.append(wanted(world, f"receiver-{number}", here))
    if traffic == "dead-lettering":
        clients.append(Heir(world, "heir", here))
    return clients
