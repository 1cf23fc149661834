"""Requests straight into the HTTP gateway's application, without a socket."""

import asyncio
import base64
import hmac
from collections.abc import Coroutine
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import quote
from xml.etree.ElementTree import Element, fromstring

from busway.broker.namespace.namespace import Namespace
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http.app import HttpGateway, HttpSettings
from busway.gateway.http.presence import PRESENCE, ClientPresence
from busway.model.limits import Limits
from busway.staging.stagings import Stagings
from busway.streams.event_hubs import EventHubs
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore

T = TypeVar("T")

ATOM = "{http://www.w3.org/2005/Atom}"
CONNECT = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
ROOT_KEY = "dGhlIHJvb3Qga2V5IG9mIHRoZSB0ZXN0cw=="
HOST = "localhost:5672"
VERSION = "api-version=2024-05"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str
    content: bytes = b""

    @property
    def xml(self) -> Element:
        return fromstring(self.text)

    @property
    def detail(self) -> str:
        return self.xml.findtext("Detail") or ""

    def property(self, name: str) -> str | None:
        return self.xml.findtext(f".//{CONNECT}{name}")


def sas_token(
    scope: str, rule_name: str = "RootManageSharedAccessKey", key: str = ROOT_KEY, expiry: int = 4_000_000_000
) -> str:
    resource = quote(scope, safe="")
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule_name}"


ROOT_TOKEN = sas_token(f"https://{HOST}")


class Exchange:
    """A gateway over a real namespace in memory; requests carry the root token unless another is given."""

    def __init__(self, settings: HttpSettings | None = None, *, allows_reset: bool = False) -> None:
        self.clock = ManualClock()
        self._runner = asyncio.Runner()
        stores = [MemoryStore("store-0"), MemoryStore("store-1")]
        self.namespace = Namespace(
            "busway-test", stores, self.clock, SeededEntropy(), Limits(), root_key=ROOT_KEY
        )
        self.hubs = EventHubs(self.namespace, self.clock, SeededEntropy(4))
        self.stagings = Stagings(self.namespace, self.hubs, PayloadCodec(SeededEntropy(5)))
        self._runner.run(self.namespace.open())
        self.gateway = HttpGateway(
            self.namespace,
            self.clock,
            SeededEntropy(2),
            _no_amqp,
            PayloadCodec(SeededEntropy(3)),
            settings,
            self.hubs,
            stagings=self.stagings,
            make_new=self.namespace.reset if allows_reset else None,
        )

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.namespace.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Something beside HTTP, on the same loop."""
        return self._runner.run(work)

    def request(
        self,
        method: str,
        target: str,
        body: str | bytes = b"",
        headers: dict[str, str] | None = None,
        token: str | None = ROOT_TOKEN,
        host: str = HOST,
    ) -> Answer:
        sent = {"host": host, **(headers or {})}
        if token is not None:
            sent["authorization"] = token
        content = body.encode() if isinstance(body, str) else body
        return self._runner.run(self._exchange(method, target, content, sent))

    def request_together(self, *requests: tuple[str, str]) -> list[Answer]:
        """Several (method, target) at the same moment, each with the root token."""

        async def all_of_them() -> list[Answer]:
            headers = {"host": HOST, "authorization": ROOT_TOKEN}
            return list(
                await asyncio.gather(
                    *(self._exchange(method, target, b"", headers) for method, target in requests)
                )
            )

        return self._runner.run(all_of_them())

    async def _exchange(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
        path, _, query = target.partition("?")
        presence = ClientPresence()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 5672),
            "state": {PRESENCE: presence},
        }
        sent: list[dict[str, object]] = []

        bodies = [body]

        async def receive() -> dict[str, object]:
            if not bodies:
                await asyncio.Event().wait()  # the client stays
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                presence.answered()

        await self.gateway.app(scope, receive, send)
        start = sent[0]
        content = b"".join(bytes(message.get("body", b"")) for message in sent[1:])
        names = {name.decode(): text.decode("latin-1") for name, text in start["headers"]}
        return Answer(int(start["status"]), names, content.decode(errors="replace"), content)


def queue_body(properties: str = "", kind: str = "QueueDescription") -> str:
    """An entry as the Python SDK writes it: a prefix on ATOM, none on the description."""
    return (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
        ' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
        f'<ns0:content type="application/xml"><{kind}>{properties}</{kind}></ns0:content></ns0:entry>'
    )


def _no_amqp(transport: object, peer: str) -> object:
    raise AssertionError(f"no AMQP was asked for: {transport!r} {peer}")
