"""A connection string, taken apart, and the tokens that its key signs.

`Endpoint=sb://HOST[:PORT]/;SharedAccessKeyName=…;SharedAccessKey=…[;EntityPath=…][;UseDevelopmentEmulator=true]
[;TransportType=AmqpWebSockets]`

With the emulator switch everything (AMQP and HTTP) goes plain to the one port of the endpoint; without it AMQP is
TLS on 5671 and HTTP is TLS on 443, where the official clients look too. Over WebSockets AMQP goes where HTTP does.

Tokens are shared access signatures (A-4).
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

PLAIN_PORT: Final = 5672
TLS_PORT: Final = 5671
HTTPS_PORT: Final = 443

_KNOWN_KEYS: Final = {
    "endpoint",
    "sharedaccesskeyname",
    "sharedaccesskey",
    "sharedaccesssignature",
    "entitypath",
    "usedevelopmentemulator",
    "transporttype",
}
#: As the official clients for Java write them.
_TRANSPORTS: Final = {"amqp": False, "amqpwebsockets": True}


class BadConnectionString(ValueError):
    """The connection string cannot be used; the text says why and never holds a secret."""


@dataclass(frozen=True)
class ConnectionString:
    """A connection string, taken apart."""

    host: str
    port: int | None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)  # a token made elsewhere
    entity_path: str | None = None
    emulator: bool = False
    over_websocket: bool = False

    @property
    def amqp_port(self) -> int:
        if self.over_websocket:
            return self.http_port
        if self.emulator:
            return PLAIN_PORT if self.port is None else self.port
        return TLS_PORT if self.port is None else self.port

    @property
    def http_port(self) -> int:
        if self.emulator:
            return PLAIN_PORT if self.port is None else self.port
        return HTTPS_PORT if self.port is None else self.port

    @property
    def authority(self) -> str:
        """HOST or HOST:PORT, as it stands in audiences."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def audience(self, entity: str) -> str:
        return f"sb://{self.authority}/{entity}"

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        parts = _parts(text)
        host, port = _endpoint(parts.get("endpoint"))
        signature = parts.get("sharedaccesssignature")
        key_name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
        if signature is None and (not key_name or not key):
            raise BadConnectionString(
                "The connection string needs SharedAccessKeyName and SharedAccessKey (or SharedAccessSignature)."
            )
        return cls(
            host=host,
            port=port,
            key_name=key_name,
            key=key,
            signature=signature,
            entity_path=parts.get("entitypath"),
            emulator=parts.get("usedevelopmentemulator", "").lower() == "true",
            over_websocket=_over_websocket(parts.get("transporttype", "amqp")),
        )


def compose(host: str, port: int | None, key_name: str, key: str, *, emulator: bool) -> str:
    """The text a server prints and `busway connection-string` repeats."""
    authority = ConnectionString(host, port).authority
    text = f"Endpoint=sb://{authority};SharedAccessKeyName={key_name};SharedAccessKey={key}"
    return text + ";UseDevelopmentEmulator=true" if emulator else text


def _parts(text: str) -> dict[str, str]:
    """Keys in lower case. A value may hold `=` (keys are base64), never `;`."""
    parts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        key, equals, value = part.partition("=")
        name = key.strip().lower()
        if not equals or name not in _KNOWN_KEYS:
            raise BadConnectionString(
                f"The connection string has a part that is not known: {_shown(key, equals)}."
            )
        if name in parts:
            raise BadConnectionString(f"The connection string has {key.strip()} twice.")
        parts[name] = value.strip()
    if not parts:
        raise BadConnectionString("The connection string is empty.")
    return parts


def _shown(key: str, equals: str) -> str:
    """The name of a part, never a value: a part without `=` could be a broken-off key."""
    return f"'{key.strip()[:40]}'" if equals else "one without '='"


def _over_websocket(transport: str) -> bool:
    found = _TRANSPORTS.get(transport.lower())
    if found is None:
        raise BadConnectionString(f"The TransportType '{transport[:40]}' is neither Amqp nor AmqpWebSockets.")
    return found


def _endpoint(endpoint: str | None) -> tuple[str, int | None]:
    if not endpoint:
        raise BadConnectionString("The connection string has no Endpoint=sb://HOST.")
    try:
        split = urlsplit(endpoint)
        host, port = split.hostname, split.port
    except ValueError as error:
        raise BadConnectionString(
            f"The Endpoint '{endpoint}' is not an address like sb://HOST:PORT."
        ) from error
    if split.scheme.lower() != "sb" or not host:
        raise BadConnectionString(f"The Endpoint '{endpoint}' is not an address like sb://HOST:PORT.")
    return host, port


LIFETIME_S: Final = 3_600


def sas_token(uri: str, key_name: str, key: str, expires_at_s: int) -> str:
    """The key's text itself is the HMAC key; what is signed is the encoded URI, exactly as sent."""
    resource = _encoded(uri)
    signed = f"{resource}\n{expires_at_s}".encode()
    signature = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest()).decode()
    parts = (
        f"sr={resource}",
        f"sig={_encoded(signature)}",
        f"se={expires_at_s}",
        f"skn={_encoded(key_name)}",
    )
    return "SharedAccessSignature " + "&".join(parts)


def _encoded(text: str) -> str:
    return quote(text, safe="")


def token_for(target: ConnectionString, uri: str, now_s: float, valid_s: int = LIFETIME_S) -> str:
    """A token for `uri` that lives so long, or the one the connection string brings along."""
    if target.signature is not None:
        return target.signature
    if target.key_name is None or target.key is None:
        raise BadConnectionString("The connection string has no key to sign with.")
    return sas_token(uri, target.key_name, target.key, int(now_s) + valid_s)
