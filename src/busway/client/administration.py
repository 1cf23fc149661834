"""Managing a namespace over HTTP: queues by ATOM, stores and namespace rules by JSON.

Blocking, one connection per client, standard library only. Under the emulator switch it speaks plain HTTP to
the endpoint's port, else HTTPS with the given authority (or the system's).
"""

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from busway.client.connection_string import ConnectionString
from busway.client.errors import (
    ClientError,
    EntityExists,
    EntityMissing,
    NotAuthorised,
    Refused,
    Unreachable,
)
from busway.client.queue_entry import KeyRule, QueueEntry, entries, parse_document, read_entry, write_entry
from busway.client.queue_properties import Value
from busway.client.sas_token import token_for

API_VERSION: Final = "2021-05"
PAGE: Final = 100
TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class ServiceBusAdministrationClient:
    def __init__(self, target: ConnectionString, ca_file: Path | None = None) -> None:
        self._target = target
        self._connection = _connection(target, ca_file)

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

    # -- queues
    def create_queue(self, name: str, properties: Mapping[str, Value] | None = None) -> QueueEntry:
        body = write_entry(QueueEntry(name, dict(properties or {}), {}))
        return self._entry(name, self._request("PUT", _path(name), body))

    def get_queue(self, name: str) -> QueueEntry:
        return self._entry(name, self._request("GET", _path(name)))

    def update_queue(self, queue: QueueEntry) -> QueueEntry:
        return self._entry(
            queue.name, self._request("PUT", _path(queue.name), write_entry(queue), {"If-Match": "*"})
        )

    def delete_queue(self, name: str) -> None:
        self._request("DELETE", _path(name))

    def list_queues(self) -> Iterator[QueueEntry]:
        skip = 0
        while True:
            answer = self._request("GET", "/$Resources/queues", query=f"&$skip={skip}&$top={PAGE}")
            page = [read_entry(entry) for entry in entries(parse_document(answer))]
            yield from page
            if len(page) < PAGE:
                return
            skip += len(page)

    # -- the namespace
    def stores(self) -> list[dict[str, object]]:
        """[{name, url, state, fragments}]"""
        return _list_of_objects(self._request("GET", "/$stores"))

    def set_store_enabled(self, name: str, enabled: bool) -> None:
        self._request("POST", f"/$stores/{quote(name, safe='')}/{'enable' if enabled else 'disable'}")

    def rules(self) -> list[KeyRule]:
        return [_rule(item) for item in _list_of_objects(self._request("GET", "/$rules"))]

    def put_rule(self, rule: KeyRule) -> None:
        body = {
            "rights": list(rule.rights),
            "primaryKey": rule.primary_key,
            "secondaryKey": rule.secondary_key,
        }
        self._request(
            "PUT", f"/$rules/{quote(rule.name, safe='')}", json.dumps(body).encode(), content="json"
        )

    def delete_rule(self, name: str) -> None:
        self._request("DELETE", f"/$rules/{quote(name, safe='')}")

    # -- one exchange
    def _entry(self, name: str, answer: bytes) -> QueueEntry:
        found = entries(parse_document(answer))
        if not found:  # a missing queue is answered with a feed that has no entries (ERR-43)
            raise EntityMissing(f"The queue '{name}' does not exist.")
        return read_entry(found[0])

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


def _list_of_objects(answer: bytes) -> list[dict[str, object]]:
    try:
        loaded = json.loads(answer)
    except ValueError as error:
        raise Refused("The server answered with something that is not JSON.") from error
    if not isinstance(loaded, list) or not all(isinstance(item, dict) for item in loaded):
        raise Refused("The server answered with JSON of another shape than a list of objects.")
    return loaded


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
