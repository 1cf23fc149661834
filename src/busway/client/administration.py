"""Managing a namespace over HTTP: entities and rules by ATOM; stores, keys, event hubs and streams that read the bus
by JSON, as objects under the names of the management routes.

Blocking, one connection per client, standard library only. Under the emulator switch it speaks plain HTTP to
the endpoint's port, else HTTPS with the given authority (or the system's).
"""

import http.client
import json
import ssl
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from busway.client.atom_entries import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    EntityEntry,
    EntityKind,
    KeyRule,
    entries,
    kind_of,
    parse_document,
    read_entry,
    read_rule,
    rule_element,
    write_entry,
    write_rule,
)
from busway.client.connection_string import ConnectionString, token_for
from busway.client.entity_properties import Value
from busway.client.errors import (
    ClientError,
    EntityExists,
    EntityMissing,
    NotAuthorised,
    Refused,
    Unreachable,
)
from busway.rules.rule import Rule

Json = dict[str, object]

_HUBS: Final = "/$eventhubs"
_PIPELINES: Final = "/$pipelines"


class Exchange(Protocol):
    """One request and its answer."""

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: str = "",
        content: str = "atom+xml",
    ) -> bytes: ...


class HubAdministration:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def create(self, name: str, properties: Mapping[str, object], groups: Sequence[str] = ()) -> Json:
        return self._put(_hub_url(name), {**properties, "ConsumerGroups": list(groups)})

    def update(self, name: str, properties: Mapping[str, object]) -> Json:
        """Properties that are not named stay as they are."""
        return self._put(_hub_url(name), properties, _UPDATES)

    def get(self, name: str) -> Json:
        return object_of(self._exchange("GET", _hub_url(name), content="json"))

    def list(self) -> list[Json]:
        return objects_of(self._exchange("GET", _HUBS, content="json"))

    def delete(self, name: str) -> None:
        self._exchange("DELETE", _hub_url(name), content="json")

    def partitions(self, name: str) -> "Sequence[Json]":
        """Of each: store, health, first and last number, events, size."""
        return objects_of(self._exchange("GET", f"{_hub_url(name)}/partitions", content="json"))

    def create_group(self, hub: str, name: str, properties: Mapping[str, object] | None = None) -> Json:
        return self._put(_group_url(hub, name), properties or {})

    def groups(self, hub: str) -> "Sequence[Json]":
        return objects_of(self._exchange("GET", f"{_hub_url(hub)}/consumergroups", content="json"))

    def delete_group(self, hub: str, name: str) -> None:
        self._exchange("DELETE", _group_url(hub, name), content="json")

    def _put(
        self, url: str, properties: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> Json:
        body = json.dumps(properties).encode()
        return object_of(self._exchange("PUT", url, body, headers, content="json"))


class PipelineReports:
    """Streams that read the bus, as they report themselves."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def list(self) -> "Sequence[Json]":
        """By name: state, what each reads, how far it is behind."""
        return objects_of(self._exchange("GET", _PIPELINES, content="json"))

    def get(self, name: str) -> Json:
        """The same of one, with each partition."""
        return object_of(self._exchange("GET", f"{_PIPELINES}/{quote(name, safe='')}", content="json"))

    def forget(self, name: str) -> None:
        """Until it reports again."""
        self._exchange("DELETE", f"{_PIPELINES}/{quote(name, safe='')}", content="json")


def object_of(answer: bytes) -> Json:
    loaded = _loaded(answer)
    if not isinstance(loaded, dict):
        raise Refused("The server answered with JSON of another shape than an object.")
    return loaded


def objects_of(answer: bytes) -> list[Json]:
    loaded = _loaded(answer)
    if not isinstance(loaded, list) or not all(isinstance(item, dict) for item in loaded):
        raise Refused("The server answered with JSON of another shape than a list of objects.")
    return loaded


def _loaded(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Refused("The server answered with something that is not JSON.") from error


def _hub_url(name: str) -> str:
    return f"{_HUBS}/{quote(name, safe='')}"


def _group_url(hub: str, name: str) -> str:
    return f"{_hub_url(hub)}/consumergroups/{quote(name, safe='$')}"


API_VERSION: Final = "2021-05"
PAGE: Final = 100
_UPDATES: Final = {"If-Match": "*"}
TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class ServiceBusAdministrationClient:
    def __init__(self, target: ConnectionString, ca_file: Path | None = None) -> None:
        self._target = target
        self._connection = _connection(target, ca_file)
        #: Event hubs and their consumer groups.
        self.hubs = HubAdministration(self._request)
        #: Streams that read the bus.
        self.pipelines = PipelineReports(self._request)

    @classmethod
    def from_connection_string(
        cls, text: str, ca_file: Path | None = None
    ) -> "ServiceBusAdministrationClient":
        return cls(ConnectionString.parse(text), ca_file)

    def __enter__(self) -> "ServiceBusAdministrationClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def reset(self) -> None:
        """Makes the bus as new, where the server allows it (`serve --allow-reset`)."""
        self._request("POST", "/$reset")

    # -- queues
    def create_queue(self, name: str, properties: Mapping[str, Value] | None = None) -> EntityEntry:
        return self.create(EntityEntry(QUEUE, name, dict(properties or {}), {}))

    def get_queue(self, name: str) -> EntityEntry:
        return self._get(QUEUE, name, _path(name))

    def update_queue(self, queue: EntityEntry) -> EntityEntry:
        return self.update(queue)

    def delete_queue(self, name: str) -> None:
        self.get_queue(name)  # a topic of that name stays
        self._request("DELETE", _path(name))

    def list_queues(self) -> Iterator[EntityEntry]:
        return self._list(QUEUE, "/$Resources/queues")

    # -- topics
    def create_topic(self, name: str, properties: Mapping[str, Value] | None = None) -> EntityEntry:
        return self.create(EntityEntry(TOPIC, name, dict(properties or {}), {}))

    def get_topic(self, name: str) -> EntityEntry:
        return self._get(TOPIC, name, _path(name))

    def update_topic(self, topic: EntityEntry) -> EntityEntry:
        return self.update(topic)

    def delete_topic(self, name: str) -> None:
        self.get_topic(name)
        self._request("DELETE", _path(name))

    def list_topics(self) -> Iterator[EntityEntry]:
        return self._list(TOPIC, "/$Resources/topics")

    # -- subscriptions
    def create_subscription(
        self,
        topic_name: str,
        name: str,
        properties: Mapping[str, Value] | None = None,
        default_rule: Rule | None = None,
    ) -> EntityEntry:
        """With `default_rule` instead of `$Default`, which selects every message."""
        wanted = EntityEntry(SUBSCRIPTION, name, dict(properties or {}), {})
        return self.create(wanted, topic_name, default_rule)

    def get_subscription(self, topic_name: str, name: str) -> EntityEntry:
        return self._get(SUBSCRIPTION, name, subscription_url(topic_name, name))

    def update_subscription(self, topic_name: str, subscription: EntityEntry) -> EntityEntry:
        return self.update(subscription, topic_name)

    def delete_subscription(self, topic_name: str, name: str) -> None:
        self._request("DELETE", subscription_url(topic_name, name))

    def list_subscriptions(self, topic_name: str) -> Iterator[EntityEntry]:
        return self._list(SUBSCRIPTION, f"{_path(topic_name)}/Subscriptions")

    # -- rules of subscriptions
    def create_rule(self, topic_name: str, subscription_name: str, rule: Rule) -> None:
        self._request("PUT", _rule_url(topic_name, subscription_name, rule.name), write_rule(rule))

    def update_rule(self, topic_name: str, subscription_name: str, rule: Rule) -> None:
        url = _rule_url(topic_name, subscription_name, rule.name)
        self._request("PUT", url, write_rule(rule), _UPDATES)

    def delete_rule(self, topic_name: str, subscription_name: str, name: str) -> None:
        self._request("DELETE", _rule_url(topic_name, subscription_name, name))

    def list_rules(self, topic_name: str, subscription_name: str) -> list[Rule]:
        self.get_subscription(topic_name, subscription_name)  # a missing one has no feed to be empty
        url = f"{subscription_url(topic_name, subscription_name)}/Rules"
        return [read_rule(entry) for entry in self._pages(url)]

    # -- any entity
    def get_queue_or_topic(self, name: str) -> EntityEntry:
        found = entries(parse_document(self._request("GET", _path(name))))
        kind = kind_of(found[0]) if found else None
        if kind is None:
            raise EntityMissing(f"There is no queue or topic '{name}'.")
        return read_entry(kind, found[0])

    def create(
        self, entity: EntityEntry, topic_name: str | None = None, default_rule: Rule | None = None
    ) -> EntityEntry:
        extra: dict[str, ET.Element] = {}
        if default_rule is not None:
            extra["DefaultRuleDescription"] = rule_element(default_rule, "DefaultRuleDescription")
        url = _url(entity, topic_name)
        return _entry(entity.kind, entity.name, self._request("PUT", url, write_entry(entity, extra)))

    def update(self, entity: EntityEntry, topic_name: str | None = None) -> EntityEntry:
        url = _url(entity, topic_name)
        return _entry(entity.kind, entity.name, self._request("PUT", url, write_entry(entity), _UPDATES))

    def _get(self, kind: EntityKind, name: str, url: str) -> EntityEntry:
        return _entry(kind, name, self._request("GET", url))

    def _list(self, kind: EntityKind, url: str) -> Iterator[EntityEntry]:
        return (read_entry(kind, entry) for entry in self._pages(url))

    def _pages(self, url: str) -> Iterator[ET.Element]:
        skip = 0
        while True:
            answer = self._request("GET", url, query=f"&$skip={skip}&$top={PAGE}")
            page = entries(parse_document(answer))
            yield from page
            if len(page) < PAGE:
                return
            skip += len(page)

    # -- the namespace
    def fragments(self, path: str) -> list[dict[str, object]]:
        """Of a queue, topic or subscription: where each lies, how its store is, what it holds."""
        return objects_of(self._request("GET", f"/$fragments{_path(path)}"))

    def stores(self) -> list[dict[str, object]]:
        """[{name, url, state, owner, epoch, fragments}]"""
        return objects_of(self._request("GET", "/$stores"))

    def nodes(self) -> list[dict[str, object]]:
        """[{name, state, stores, address, version, uptime_s, last_beat_s, is_this}]: who shares the stores."""
        return objects_of(self._request("GET", "/$nodes"))

    def set_store_enabled(self, name: str, enabled: bool) -> None:
        self._request("POST", f"/$stores/{quote(name, safe='')}/{'enable' if enabled else 'disable'}")

    # -- backups
    def begin_backup(self, to: str, note: str) -> Json:
        """See `busway.safekeeping.draft`: the caller has made the folder that the server writes into."""
        body = json.dumps({"to": to, "note": note}).encode()
        return object_of(self._request("POST", "/$backup", body, content="json"))

    def backup(self) -> Json:
        """How far the last one is."""
        return object_of(self._request("GET", "/$backup"))

    def stop_backup(self) -> None:
        self._request("DELETE", "/$backup")

    # -- claims
    def claims(self, path: str) -> list[Json]:
        """[{stamp, messages}] of a queue or subscription, or of its dead letters: what streams hold there."""
        found = object_of(self._request("GET", f"{_path(path)}/$claims")).get("claims")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def release_claim(self, path: str, stamp: str) -> tuple[int, int]:
        """How many messages are available again, and how many are not because somebody has locked them."""
        address = f"{_path(path)}/$claims/{quote(stamp, safe='')}/release"
        answer = object_of(self._request("POST", address, b"", content="json"))
        return int(str(answer.get("released", 0))), int(str(answer.get("locked", 0)))

    def leave_token(self, token: str, below: str) -> str:
        """For a browser that shows the console: the code under which it finds the token, once. `below`: the entity
        that the token is for."""
        body = json.dumps({"token": token, "below": below}).encode()
        answer = self._request("POST", "/$console/codes", body, {"Authorization": token}, content="json")
        return str(object_of(answer).get("code", ""))

    def overview(self) -> Json:
        """Every entity in one row: {namespace, stores, connections, columns, rows}."""
        return object_of(self._request("GET", "/$overview", content="json"))

    def namespace_name(self) -> str:
        document = parse_document(self._request("GET", "/$namespaceinfo"))
        return next((each.text or "" for each in document.iter() if each.tag.endswith("}Name")), "")

    def key_rules(self) -> list[KeyRule]:
        return [_rule(item) for item in objects_of(self._request("GET", "/$rules"))]

    def put_key_rule(self, rule: KeyRule) -> None:
        body = {
            "rights": list(rule.rights),
            "primaryKey": rule.primary_key,
            "secondaryKey": rule.secondary_key,
        }
        self._request(
            "PUT", f"/$rules/{quote(rule.name, safe='')}", json.dumps(body).encode(), content="json"
        )

    def delete_key_rule(self, name: str) -> None:
        self._request("DELETE", f"/$rules/{quote(name, safe='')}")

    # -- one exchange
    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: str = "",
        content: str = "atom+xml",
    ) -> bytes:
        uri = f"https://{self._target.authority}"
        sent = {
            "Authorization": token_for(self._target, uri, time.time()),
            "Content-Type": f"application/{content}",
            "Accept": "application/json"
            if content == "json"
            else "application/xml, application/atom+xml, */*",
            **(headers or {}),
        }
        try:
            self._connection.request(method, f"{path}?api-version={API_VERSION}{query}", body, sent)
            response = self._connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable.at(self._target.host, self._target.http_port, error) from error
        if response.status >= 300:
            raise _refusal(response.status, answer)
        return answer


def _connection(target: ConnectionString, ca_file: Path | None) -> http.client.HTTPConnection:
    if target.emulator:
        return http.client.HTTPConnection(target.host, target.http_port, timeout=TIMEOUT_S)
    context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    return http.client.HTTPSConnection(target.host, target.http_port, timeout=TIMEOUT_S, context=context)


def _path(name: str) -> str:
    return "/" + quote(name.strip("/"), safe="/$")


def subscription_url(topic_name: str, name: str) -> str:
    return f"{_path(topic_name)}/Subscriptions/{quote(name, safe='')}"


def _rule_url(topic_name: str, subscription_name: str, name: str) -> str:
    return f"{subscription_url(topic_name, subscription_name)}/Rules/{quote(name, safe='$')}"


def _url(entity: EntityEntry, topic_name: str | None) -> str:
    return _path(entity.name) if topic_name is None else subscription_url(topic_name, entity.name)


def _entry(kind: EntityKind, name: str, answer: bytes) -> EntityEntry:
    found = entries(parse_document(answer))
    if not found:  # a missing entity is answered with a feed that has no entries (ERR-43)
        raise EntityMissing(f"The {kind.word} '{name}' does not exist.")
    other = kind_of(found[0])
    if other is not None and other is not kind:
        raise EntityMissing(f"There is no {kind.word} '{name}': that is the name of a {other.word}.")
    return read_entry(kind, found[0])


def _rule(item: dict[str, object]) -> KeyRule:
    rights = item.get("rights")
    return KeyRule(
        name=str(item.get("name", "")),
        rights=tuple(str(right) for right in rights) if isinstance(rights, list) else (),
        primary_key=str(item.get("primaryKey", "")),
        secondary_key=str(item.get("secondaryKey", "")),
    )


def _refusal(status: int, answer: bytes) -> ClientError:
    kinds: dict[int, type[ClientError]] = {401: NotAuthorised, 404: EntityMissing, 409: EntityExists}
    sentence = _detail(answer) or f"The server answered with HTTP status {status}."
    return kinds.get(status, Refused)(sentence)


def _detail(answer: bytes) -> str:
    """The sentence of an ATOM error (ERR-41), without its sub-code and tracking part."""
    try:
        text = parse_document(answer).findtext("Detail") or ""
    except Exception:  # any body at all may come from a proxy in between; its sentence is then the status
        return ""
    if text.startswith("SubCode="):
        text = text.partition(". ")[2]
    return text.partition(" TrackingId:")[0].strip()
