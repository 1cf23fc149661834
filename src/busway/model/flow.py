"""What flows through each entity, counted (O-1…O-4).

Theory of operation. An entity has one `FlowCounts` of plain integers, shared by its fragments and its dead-letter
fragments. Two kinds of things are counted, by those who know them:

  requests   at the gateways (AMQP links, request nodes, HTTP), once for each run, when their answers are known. So
             the four results always add up to the requests there were
  messages   in the fragment: taken in when they are durable, handed out when a receiver has taken them

Nobody counts message by message and nobody reads a clock more than twice for a run. Counts only ever grow; they
live as long as the process. A `FlowTable` keeps them while an entity's fragments are dropped and made anew (a
store that failed), and forgets them with the entity. What names no entity that was ever used counts for the
namespace, so strangers cannot make entries by asking for names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from busway.model.entity_path import TRANSFER_KEYWORD, EntityAddress, path_key
from busway.model.errors import BrokerError, InternalError, QuotaExceeded, ServerBusy, StoreOutcomeUnknown
from busway.model.settlement import Verb

#: O-2: the entity's name of what concerns the namespace as a whole.
NAMESPACE_ONLY: Final = "-NamespaceOnlyMetric-"
_TRANSFER_ENDING: Final = f"/{TRANSFER_KEYWORD}"
#: Upper ends, in seconds, of the steps in which the time of a send is told; above the last there is one step more.
LATENCY_STEPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class FlowCounts:
    """The counts of one entity, or of the namespace."""

    __slots__ = (
        "abandoned",
        "bytes_in",
        "bytes_out",
        "completed",
        "dead_lettered",
        "latency_s",
        "latency_steps",
        "messages_in",
        "messages_out",
        "noted",
        "path",
        "quota_errors",
        "server_errors",
        "successes",
        "throttled",
        "user_errors",
    )

    def __init__(self, path: str) -> None:
        #: As the entity was spelled when it was first used.
        self.path = path
        # Requests, by result.
        self.successes = 0
        self.user_errors = 0
        self.quota_errors = 0  #: among the user errors
        self.server_errors = 0
        self.throttled = 0
        # Messages.
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.completed = 0
        self.abandoned = 0
        #: Moved or put beside the others, for whatever reason.
        self.dead_lettered = 0
        #: The sum of these counts that `signals.rates` has noted.
        self.noted = 0
        #: Messages by the time from their admission until they were durable; and the sum of those times.
        self.latency_steps: list[int] = [0] * (len(LATENCY_STEPS_S) + 1)
        self.latency_s = 0.0

    @property
    def requests(self) -> int:
        return self.successes + self.user_errors + self.server_errors + self.throttled

    # -- requests

    def answered(self, count: int, failures: list[tuple[int, BrokerError]]) -> None:
        """So many requests were answered, those in `failures` with an error."""
        self.successes += count
        if failures:
            self.successes -= len(failures)
            for _, error in failures:
                self._count_error(error, 1)

    def refused(self, error: BrokerError, count: int = 1) -> None:
        """So many requests were answered with the same error."""
        self._count_error(error, count)

    def mistaken(self) -> None:
        """One request was refused for a fault of the client that has no class of its own here."""
        self.user_errors += 1

    def failed(self) -> None:
        """One request met a mistake of ours."""
        self.server_errors += 1

    def _count_error(self, error: BrokerError, count: int) -> None:
        """O-3: whose fault it was."""
        if isinstance(error, ServerBusy):
            self.throttled += count
        elif isinstance(error, InternalError | StoreOutcomeUnknown) or type(error) is BrokerError:
            self.server_errors += count
        else:
            self.user_errors += count
            if isinstance(error, QuotaExceeded):
                self.quota_errors += count

    # -- messages

    def taken_in(self, count: int, size_bytes: int, waited_s: float) -> None:
        """A run is durable that clients sent, or that was forwarded here. Duplicates count, though they are
        dropped (S-47, O-4)."""
        self.messages_in += count
        self.bytes_in += size_bytes
        self.latency_s += waited_s * count
        step = 0
        for limit_s in LATENCY_STEPS_S:
            if waited_s <= limit_s:
                break
            step += 1
        self.latency_steps[step] += count

    def handed_out(self, count: int, size_bytes: int) -> None:
        """A receiver has taken a run. Moves, dead-lettering among them, hand out nothing (O-4)."""
        self.messages_out += count
        self.bytes_out += size_bytes

    def settled(self, verb: Verb, count: int) -> None:
        if verb is Verb.COMPLETE:
            self.completed += count
        elif verb is Verb.ABANDON:
            self.abandoned += count


class ConnectionFlow:
    """Clients' connections that have shown a valid token or key (L-11)."""

    __slots__ = ("closed", "opened")

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0

    @property
    def active(self) -> int:
        return self.opened - self.closed


class FlowTable:
    """All flows of a namespace."""

    __slots__ = ("_flows", "connections", "namespace")

    def __init__(self) -> None:
        self._flows: dict[str, FlowCounts] = {}
        self.namespace = FlowCounts(NAMESPACE_ONLY)
        self.connections = ConnectionFlow()

    def of_fragment(self, path: str) -> FlowCounts:
        """The flow of the entity that a fragment with this path belongs to; made when it is the first. What is sent
        via an entity counts as its own, like what it forwards (O-4)."""
        entity = EntityAddress.parse(path).path.removesuffix(_TRANSFER_ENDING)
        key = path_key(entity)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = FlowCounts(entity)
        return flow

    def known(self, path: str) -> FlowCounts:
        """The flow of the entity at this path, else the namespace's: whatever strangers ask for, no entry is
        made."""
        return self._flows.get(path_key(EntityAddress.parse(path).path), self.namespace)

    def nearest(self, path: str) -> FlowCounts:
        """The same for a path that may go on below the entity (`orders/messages/head`)."""
        rest = path
        while rest:
            flow = self._flows.get(path_key(rest))
            if flow is not None:
                return flow
            rest = rest.rpartition("/")[0]
        return self.namespace

    def at(self, key: str) -> FlowCounts | None:
        """Of the entity under this key (`path_key`), if anything ever flowed through it."""
        return self._flows.get(key)

    def forget(self, path: str) -> None:
        """The entity is deleted; another one under its name starts from zero."""
        self._flows.pop(path_key(path), None)

    def keep(self, paths: Collection[str]) -> None:
        """Forgets every entity but these."""
        kept = {path_key(path) for path in paths}
        for key in [key for key in self._flows if key not in kept]:
            del self._flows[key]

    def all(self) -> list[FlowCounts]:
        """The namespace's first."""
        return [self.namespace, *self._flows.values()]
