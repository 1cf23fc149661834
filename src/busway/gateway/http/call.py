"""One HTTP request as the routes see it: decoded once, bounded, its token checked in one place."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from busway.broker.authorization import Grant
from busway.broker.descriptions import AuthorizationRule, QueueDescription, RuntimeCounts
from busway.broker.errors import AuthenticationFailed, BadArgument, OperationTimedOut
from busway.broker.limits import Limits
from busway.gateway.http.statuses import method_not_allowed
from busway.gateway.http.xml_input import BODY_BYTES_MAX

_BODY_S: Final = 30.0
_NO_TOKEN: Final = 40102
_MALFORMED_TOKEN: Final = 40105
#: A request without api-version is taken as one of the newest.
_LATEST_VERSION: Final = "2024-05"
_VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}")
_AUTHORITY: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
SUPPLEMENTARY_TOKENS: Final = (
    "servicebussupplementaryauthorization",
    "servicebusdlqsupplementaryauthorization",
)


class RequestAuthorizer(Protocol):
    """The part of the authorizer that routes use."""

    def grant_of_token(self, token: str, audience: str) -> Grant: ...
    def authorise(self, grants: list[Grant], path: str, right: str) -> Grant: ...


class ManagedNamespace(Protocol):
    """The part of the namespace that routes use."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def authorizer(self) -> RequestAuthorizer: ...
    def descriptions(self) -> list[QueueDescription]: ...
    def description(self, path: str) -> QueueDescription: ...
    async def create_queue(self, description: QueueDescription) -> QueueDescription: ...
    async def update_queue(self, description: QueueDescription) -> QueueDescription: ...
    async def delete_queue(self, path: str) -> None: ...
    async def counts(self, path: str) -> RuntimeCounts: ...
    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]: ...
    def rules(self) -> tuple[AuthorizationRule, ...]: ...
    async def set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None: ...
    def stores(self) -> list[dict[str, object]]: ...
    async def disable_store(self, name: str) -> None: ...
    async def enable_store(self, name: str) -> None: ...


class Call:
    """A request with its path percent-decoded exactly once."""

    def __init__(self, request: Request, authorizer: RequestAuthorizer) -> None:
        """Raises BadArgument when the request line or the Host header is not clean."""
        self.request = request
        self.method = request.method
        self.path = decoded_path(request.scope["raw_path"])
        self.authority = checked_authority(request.headers.get("host", ""))
        self.api_version = _api_version(request)
        self._authorizer = authorizer

    @property
    def segments(self) -> list[str]:
        """Lower-cased, for the keywords of E-8; entity names keep their spelling in `path`."""
        return self.path.lower().split("/")

    @property
    def root(self) -> str:
        return f"{self.request.url.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """Absolute, with the query as requested."""
        query = self.request.scope["query_string"].decode("latin-1")
        return f"{self.root}/{self.path}" + (f"?{query}" if query else "")

    def allow(self, *methods: str) -> None:
        """Raises 405 for any other method."""
        if self.method not in methods:
            raise method_not_allowed(", ".join(methods))

    def require(self, right: str) -> Grant:
        """The caller holds a token that allows `right` on this path (A-6, A-9). Raises 401s."""
        grant = self._authorizer.grant_of_token(self._token("authorization"), f"{self.root}/{self.path}")
        return self._authorizer.authorise([grant], self.path, right)

    def require_on(self, target: str, right: str) -> None:
        """The same for another entity of the namespace, by the caller's token or a supplementary one."""
        audience = f"{self.root}/{target}"
        names = [name for name in ("authorization", *SUPPLEMENTARY_TOKENS) if name in self.request.headers]
        grants: list[Grant] = []
        for name in names:
            try:
                grants.append(self._authorizer.grant_of_token(self._token(name), audience))
            except AuthenticationFailed:
                continue
        self._authorizer.authorise(grants, target, right)

    def _token(self, header: str) -> str:
        tokens = self.request.headers.getlist(header)
        if not tokens:
            raise AuthenticationFailed("MissingToken: The authorization header was not found.", _NO_TOKEN)
        if len(tokens) > 1:
            raise AuthenticationFailed("MalformedToken: There are several tokens.", _MALFORMED_TOKEN)
        return tokens[0]

    async def body(self) -> bytes:
        """At most 64 KiB, within 30 seconds."""
        declared = self.request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
            raise _too_large()
        try:
            async with asyncio.timeout(_BODY_S):
                return await self._read()
        except TimeoutError as error:
            raise OperationTimedOut(f"The body did not arrive within {_BODY_S:.0f} seconds.") from error

    async def _read(self) -> bytes:
        received = bytearray()
        try:
            async for chunk in self.request.stream():
                received += chunk
                if len(received) > BODY_BYTES_MAX:
                    raise _too_large()
        except ClientDisconnect as error:
            raise BadArgument("The body ended early.") from error
        return bytes(received)


#: A route.
Handler = Callable[[Call], Awaitable[Response]]


def decoded_path(raw_path: bytes) -> str:
    """Without the leading slash; percent-decoded once, as UTF-8 and nothing else."""
    try:
        path = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadArgument("The path is not UTF-8.") from error
    return path.removeprefix("/")


def checked_authority(host: str) -> str:
    """The Host header, which goes into every address we write."""
    if _AUTHORITY.fullmatch(host) is None:
        raise BadArgument("The Host header is missing or is not a host name.")
    return host


def host_of(authority: str) -> str:
    """Without the port, lower-cased; an IPv6 address without its brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


def _api_version(request: Request) -> str:
    version = request.query_params.get("api-version", _LATEST_VERSION)
    if _VERSION.fullmatch(version) is None:
        raise BadArgument(f"api-version: {version[:32]!r} is not a version such as {_LATEST_VERSION}.")
    return version


def _too_large() -> BadArgument:
    return BadArgument(f"The body has more than {BODY_BYTES_MAX} bytes.")
