"""Who answers which request: one table, and the search in it.

A row is an address, who answers it by which method, and what is asked before. The first row that fits is taken, so
what is above shadows what is below; a test shows that each row can be reached. An address is written as a path:

    word          this segment, in any case (here in lower case)
    {name}        one segment, in the client's spelling
    {name=a|b}    one segment, which is one of these words in any case
    {name...}     one segment or more, as many as there are; once in an address
    /?            at the end: one slash more may stand there

Segments are those of the path that was decoded as a whole. Where a segment may hold a slash (`is_raw`, ids of
messages) the path is cut first. What stands for the names is handed to whoever answers, in their order.

    meant     whether a request that fits is for this row at all; else the rows below are asked
    guard     what is looked at before the method: who asks, and whether the address can be
    others    how other methods are refused; None: they are not meant, and the rows below are asked

Few rows are tried for a request: those that begin with its first segment, and those that begin with any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from busway.gateway.http.atom.atom import invalid_verb
from busway.gateway.http.atom.management_address import is_below_topic, is_topic
from busway.gateway.http.atom.management_routes import EntityRoutes, RuleRoutes, SubscriptionRoutes
from busway.gateway.http.bulk.backfill_route import BackfillRoute
from busway.gateway.http.bulk.bulk_route import BulkRoute
from busway.gateway.http.bulk.claims_route import ClaimsRoute
from busway.gateway.http.bulk.letters_route import LettersRoute
from busway.gateway.http.bulk.staging_route import StagingRoute
from busway.gateway.http.call import Call
from busway.gateway.http.console.console_routes import ConsoleRoutes
from busway.gateway.http.event_hubs import ConsumerGroupRoutes, HubMessages, HubRoutes, PartitionsRoute
from busway.gateway.http.messages.browsing import Browsing
from busway.gateway.http.messages.messages import Messages, is_lock
from busway.gateway.http.operator_routes import (
    BackupRoute,
    MetricsRoute,
    NodesRoute,
    OperatorRoutes,
    ResetRoute,
    StatusPage,
)
from busway.gateway.http.pipelines_route import PipelinesRoute
from busway.gateway.http.statuses import HttpRefusal, method_not_allowed
from busway.model.descriptions import MANAGE
from busway.streams.event_hubs import EventHubs

#: Is given the request and what stands for the names of the address.
Answer = Callable[..., Awaitable[Response]]
#: Methods, as the header Allow lists them → who answers.
Answers = Mapping[str, Answer]
Guard = Callable[..., object]
Condition = Callable[..., bool]
#: The request, and the methods that are possible.
Refusal = Callable[[Call, str], HttpRefusal]

READ: Final = "GET, HEAD"
ANY: Final = "*"


def _method_not_allowed(_: Call, allowed: str) -> HttpRefusal:
    return method_not_allowed(allowed)


class Row(NamedTuple):
    address: str
    answers: Answers
    guard: Guard | None = None
    meant: Condition | None = None
    others: Refusal | None = _method_not_allowed
    is_raw: bool = False


@dataclass(frozen=True)
class HubsAnswering:
    """What is there where the bus has event hubs."""

    hubs: EventHubs
    routes: HubRoutes
    groups: ConsumerGroupRoutes
    messages: HubMessages
    bulk: BulkRoute
    partitions: PartitionsRoute


@dataclass(frozen=True)
class Answering:
    """Everybody who answers something."""

    metrics: MetricsRoute
    status: StatusPage
    claims: ClaimsRoute
    messages: Messages
    operators: OperatorRoutes
    nodes: NodesRoute
    reset: ResetRoute
    backup: BackupRoute
    pipelines: PipelinesRoute
    letters: LettersRoute
    backfill: BackfillRoute
    entities: EntityRoutes
    subscriptions: SubscriptionRoutes
    rules: RuleRoutes
    browsing: Browsing
    console: ConsoleRoutes
    staging: StagingRoute | None = None
    hubs: HubsAnswering | None = None


def table(of: Answering) -> list[Row]:
    return [
        *_without_key(of.metrics, of.status, of.console),
        *(_hubs(of.hubs) if of.hubs is not None else ()),
        *_claims(of.claims),
        *_browsing(of.browsing),
        *_messages(of.messages),
        *_operator(of.operators, of.nodes, of.reset, of.backup, of.pipelines),
        *_figures(of.console),
        *(_staging(of.staging) if of.staging is not None else ()),
        *_bulk(of.backfill, of.letters),
        *_entities(of.entities),
        *_below_topics(of.entities, of.subscriptions, of.rules),
        *_any_entity(of.entities),
    ]


def _without_key(metrics: MetricsRoute, status: StatusPage, console: ConsoleRoutes) -> Iterator[Row]:
    yield Row("metrics", {READ: metrics.answer}, meant=metrics.is_meant, others=None)
    yield Row("$console", {READ: console.page})
    yield Row("$console/codes", {"POST": console.leave_token}, console.check_on)
    yield Row("$console/codes/redeem", {"POST": console.redeem_code}, console.check_on)
    yield Row("$console/{version}/{file...}", {READ: console.file}, console.check_on)
    yield Row("health", {READ: status.health}, meant=status.is_health)
    yield Row("ready", {READ: status.ready}, meant=status.is_health)
    yield Row("", {ANY: status.redirect}, meant=status.is_browser)


def _hubs(of: HubsAnswering) -> Iterator[Row]:
    hubs, routes, groups = of.hubs, of.routes, of.groups

    def is_hub(_: Call, hub: str, *__: str) -> bool:
        return hubs.exists(hub)

    def is_no_queue(call: Call, hub: str, *_: str) -> bool:
        """Earlier versions let a queue have such a name."""
        return hubs.exists(hub) and not hubs.namespace.exists(call.path)

    manages = _manages_namespace
    yield Row("$eventhubs", {READ: routes.hubs}, manages)
    yield Row(
        "$eventhubs/{hub}", {READ: routes.hub, "PUT": routes.put_hub, "DELETE": routes.delete_hub}, manages
    )
    yield Row("$eventhubs/{hub}/consumergroups", {READ: routes.groups}, manages)
    yield Row(
        "$eventhubs/{hub}/consumergroups/{group}",
        {READ: routes.group, "PUT": routes.put_group, "DELETE": routes.delete_group},
        manages,
    )
    yield Row("$eventhubs/{hub}/partitions", {READ: routes.partitions}, manages)
    yield Row("$eventhubs/{rest...}", {ANY: routes.nothing}, manages)

    yield Row("{hub}/partitions/{partition}/events", {READ: of.bulk.read}, of.bulk.require, is_hub)
    yield Row("{hub}/partitions", {READ: of.partitions.tell}, None, is_no_queue, others=None)
    yield Row("{hub}/consumergroups/?", {READ: groups.groups}, groups.require, is_no_queue)
    yield Row(
        "{hub}/consumergroups/{group}",
        {READ: groups.group, "PUT": groups.put, "DELETE": groups.delete},
        groups.require,
        is_no_queue,
    )
    publishes: Mapping[str, Answer] = {"POST": of.messages.publish}
    yield Row("{hub}/messages/?", publishes, None, is_hub, others=None)
    yield Row("{hub}/{kind=partitions|publishers}/{name}/messages/?", publishes, None, is_hub, others=None)


def _claims(claims: ClaimsRoute) -> Iterator[Row]:
    yield Row("{entity...}/$claims/?", {READ: claims.claims}, claims.require)
    verbs: Mapping[str, Answer] = {
        "take": claims.take,
        "renew": claims.renew,
        "hold": claims.hold,
        "read": claims.read,
        "settle": claims.settle,
        "release": claims.release,
    }
    for verb, answer in verbs.items():
        yield Row(f"{{entity...}}/$claims/{{stamp}}/{verb}/?", {"POST": answer}, claims.require)
    yield Row("{entity...}/$claims/{stamp}/{verb}/?", {ANY: claims.unknown}, claims.require)


def _messages(messages: Messages) -> Iterator[Row]:
    """Other methods are management's: a queue may be called `a/messages`, and is managed under that name."""
    yield Row("{entity...}/messages/?", {"POST": messages.send}, others=None, is_raw=True)
    yield Row("{entity...}/messages/head/?", {"POST, DELETE": messages.receive}, others=None, is_raw=True)
    yield Row(
        "{entity...}/messages/{id}/{token}/?",
        {"POST": messages.renew, "PUT, DELETE": messages.settle},
        meant=is_lock,
        others=None,
        is_raw=True,
    )


def _browsing(browsing: Browsing) -> Iterator[Row]:
    require = browsing.require
    yield Row("{entity...}/$messages", {READ: browsing.list}, require)
    yield Row("{entity...}/$messages/delete", {"POST": browsing.delete}, require)
    yield Row("{entity...}/$messages/{number}", {READ: browsing.message}, require)
    yield Row(
        "{entity...}/$messages/locked/{token}/{verb=defer|deadletter}", {"POST": browsing.settle}, require
    )
    yield Row("{entity...}/$sessions", {READ: browsing.sessions}, require)


def _operator(
    operators: OperatorRoutes,
    nodes: NodesRoute,
    reset: ResetRoute,
    backup: BackupRoute,
    pipelines: PipelinesRoute,
) -> Iterator[Row]:
    yield Row("$nodes", {READ: nodes.nodes}, _manages)
    yield Row("$stores", {READ: operators.stores}, _manages)
    yield Row("$stores/{name}/{verb=enable|disable}", {"POST": operators.switch_store}, _manages)
    yield Row("$fragments/{entity...}", {READ: operators.fragments}, _manages)
    yield Row("$rules", {READ: operators.rules}, _manages)
    yield Row(
        "$rules/{name}",
        {READ: operators.rule, "PUT": operators.put_rule, "DELETE": operators.delete_rule},
        _manages,
    )
    yield Row("$reset", {"POST": reset.reset}, _manages)
    yield Row("$backup", {READ: backup.tell, "POST": backup.begin, "DELETE": backup.stop}, _manages_namespace)
    yield Row("$pipelines", {READ: pipelines.pipelines})
    yield Row(
        "$pipelines/{name...}",
        {READ: pipelines.pipeline, "POST": pipelines.report, "DELETE": pipelines.delete},
        pipelines.check_name,
    )


def _figures(console: ConsoleRoutes) -> Iterator[Row]:
    yield Row("$overview", {READ: console.tell_overview})
    yield Row("$rates", {READ: console.rates})
    yield Row("$rates/{entity...}", {READ: console.entity_rates})


def _staging(staging: StagingRoute) -> Iterator[Row]:
    yield Row("$staging/{write}", {READ: staging.tell, "DELETE": staging.forget})
    yield Row("$staging/{write}/{batch}", {"POST": staging.decide})
    yield Row("$staging/{write}/{batch}/{stage}", {"POST": staging.stage, "DELETE": staging.drop})
    yield Row("$staging", {ANY: staging.unknown})
    yield Row("$staging/{rest...}", {ANY: staging.unknown})


def _bulk(backfill: BackfillRoute, letters: LettersRoute) -> Iterator[Row]:
    yield Row(
        "$backfill/{subscription...}", {READ: backfill.beginnings, "POST": backfill.store}, backfill.require
    )
    yield Row("$deadletters/{entity...}", {"POST": letters.move}, letters.require)


def _entities(entities: EntityRoutes) -> Iterator[Row]:
    require = entities.require
    yield Row("", {READ: entities.root}, require)
    yield Row("$namespaceinfo", {READ: entities.namespace_info}, require)
    yield Row("$resources/queues", {READ: entities.queues}, require)
    yield Row("$resources/topics", {READ: entities.topics}, require)
    yield Row("$resources/eventhubs", {READ: entities.event_hubs}, require)
    yield Row("$resources", {READ: entities.no_list}, require)


def _below_topics(
    entities: EntityRoutes, subscriptions: SubscriptionRoutes, rules: RuleRoutes
) -> Iterator[Row]:
    """Of any entity's address that goes on behind `subscriptions`."""
    one_subscription: Answers = {
        READ: subscriptions.subscription,
        "PUT": subscriptions.put,
        "DELETE": subscriptions.delete,
    }
    one_rule: Answers = {READ: rules.rule, "PUT": rules.put, "DELETE": rules.delete}
    for below, answers, guard in (
        ("?", {READ: subscriptions.subscriptions}, subscriptions.require),
        ("{subscription}", one_subscription, subscriptions.require),
        ("{subscription}/rules/?", {READ: rules.rules}, rules.require_list),
        ("{subscription}/rules/{rule}", one_rule, rules.require),
    ):
        yield Row("{topic...}/subscriptions/" + below, answers, guard, is_topic, invalid_verb)
    yield Row("{path...}", {ANY: entities.nothing_below_subscription}, meant=is_below_topic)


def _any_entity(entities: EntityRoutes) -> Iterator[Row]:
    yield Row("$resources/{name...}", {READ: entities.no_list}, entities.require)
    yield Row(
        "{path...}",
        {READ: entities.entity, "PUT": entities.put, "DELETE": entities.delete},
        entities.require,
    )


def _manages(call: Call, *_: str) -> None:
    call.require(MANAGE)


def _manages_namespace(call: Call, *_: str) -> None:
    call.require_on_namespace(MANAGE)


# -- the search


class _Address:
    """The address of a row, made ready: where its words stand, counted from the end behind `{name...}`."""

    __slots__ = ("_after", "_before", "_has_many", "_is_open", "_names", "_words", "first", "word")

    def __init__(self, address: str) -> None:
        parts = address.removesuffix("/?").split("/")
        many = next((at for at, part in enumerate(parts) if part.endswith("...}")), None)
        self._is_open = address.endswith("/?")
        self._has_many = many is not None
        self._before = len(parts) if many is None else many
        self._after = 0 if many is None else len(parts) - many - 1
        #: Where → which words may stand there.
        self._words: list[tuple[int, frozenset[str]]] = []
        #: Where single segments with a name stand, before and behind the one of many.
        self._names: list[int | None] = []
        for at, part in enumerate(parts):
            place = at if at < self._before else at - len(parts)
            if not part.startswith("{"):
                self._words.append((place, frozenset({part})))
                continue
            self._names.append(None if at == many else place)
            choice = part.strip("{}").partition("=")[2]
            if choice:
                self._words.append((place, frozenset(choice.split("|"))))
        plain = [part for part in parts if not part.startswith("{")]
        #: One that no request without it can fit.
        self.word = plain[0] if plain else None
        self.first = parts[0] if parts[0] in plain else None

    def match(self, segments: Sequence[str], words: Sequence[str]) -> list[str] | None:
        """What stands for the names; `words` are the segments in lower case. None: it does not fit."""
        count = len(words)
        if self._is_open and count > 1 and not words[-1]:
            count -= 1
            segments, words = segments[:count], words[:count]
        least = self._before + self._after
        if count <= least if self._has_many else count != least:
            return None
        for place, allowed in self._words:
            if words[place] not in allowed:
                return None
        rest = slice(self._before, count - self._after)
        return ["/".join(segments[rest]) if at is None else segments[at] for at in self._names]


class Entry:
    """A row with its address and methods made ready."""

    __slots__ = ("address", "allowed", "answers", "row", "word")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.address = _Address(row.address)
        self.word = self.address.word
        self.answers = {method: answer for key, answer in row.answers.items() for method in key.split(", ")}
        self.allowed = ", ".join(row.answers)

    def answer_to(self, method: str) -> Answer | None:
        """None: the address is known, the method is not."""
        return self.answers.get(method) or self.answers.get(ANY)


class Router:
    def __init__(self, rows: Sequence[Row]) -> None:
        entries = [Entry(row) for row in rows]
        #: First word → the entries that may begin with it.
        self._by_first: dict[str, list[Entry]] = {
            first: [entry for entry in entries if entry.address.first in (None, first)]
            for first in {entry.address.first for entry in entries}
            if first is not None
        }
        self._others = [entry for entry in entries if entry.address.first is None]

    async def answer(self, call: Call) -> Response:
        """Raises BrokerError or HttpRefusal; the app turns them into answers."""
        entry, names = self.find(call)
        row, answer = entry.row, entry.answer_to(call.method)
        if row.guard is not None:
            row.guard(call, *names)
        if answer is None:
            assert row.others is not None, "then this row was not meant"
            raise row.others(call, entry.allowed)
        return await answer(call, *names)

    def find(self, call: Call) -> tuple[Entry, list[str]]:
        """The row for a request, and what stands for the names in its address."""
        segments, words = call.path.split("/"), call.path.lower().split("/")
        raw: tuple[list[str], list[str]] | None = None
        for entry in self._by_first.get(words[0], self._others):
            if entry.word is not None and entry.word not in words:
                continue
            row = entry.row
            if row.is_raw:
                raw = raw or _cut_first(call, segments, words)
                names = entry.address.match(*raw)
            else:
                names = entry.address.match(segments, words)
            if names is None or (row.others is None and call.method not in entry.answers):
                continue
            if row.meant is None or row.meant(call, *names):
                return entry, names
        raise AssertionError("the last row fits everything")


def _cut_first(call: Call, segments: list[str], words: list[str]) -> tuple[list[str], list[str]]:
    """The path cut before it is decoded. It is known to be UTF-8."""
    raw_path: bytes = call.request.scope["raw_path"]
    if b"%" not in raw_path:
        return segments, words
    raw = raw_path.removeprefix(b"/").split(b"/")
    decoded = [unquote_to_bytes(segment).decode("utf-8", "replace") for segment in raw]
    return decoded, [segment.lower() for segment in decoded]
