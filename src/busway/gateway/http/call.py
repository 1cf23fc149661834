"""One HTTP request as the routes see it: decoded once, bounded, its token checked in one place."""

import asyncio
import re
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request

from busway.gateway.connection_budget import SMALL_BYTES, ConnectionBudget
from busway.gateway.http.statuses import HttpRefusal
from busway.gateway.http.untrusted_input import BODY_BYTES_MAX
from busway.model.authorization import Grant, note_caller
from busway.model.errors import (
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    OperationTimedOut,
    ServerBusy,
    Unauthorized,
)

_BODY_S: Final = 30.0
#: When to come back to a route that is busy for a moment only.
SOON_S: Final = 1
_NO_TOKEN: Final = 40102
_MALFORMED_TOKEN: Final = 40105
#: A request without api-version is taken as one of the newest.
_LATEST_VERSION: Final = "2024-05"
_VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}")
_AUTHORITY: Final = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class RequestAuthorizer(Protocol):
    """The part of the authorizer that routes use."""

    def grant_of_token(self, token: str, audience: str, entity_path: str | None = None) -> Grant: ...
    def authorise(
        self, grants: list[Grant], path: str, right: str, owner_key: str | None = None
    ) -> Grant: ...
    def is_valid(self, grant: Grant) -> bool: ...


class Call:
    """A request with its path percent-decoded exactly once."""

    def __init__(
        self, request: Request, authorizer: RequestAuthorizer, budget: ConnectionBudget | None = None
    ) -> None:
        """Raises BadArgument when the request line or the Host header is not clean."""
        self.request = request
        self.method = request.method
        self.path = decoded_path(request.scope["raw_path"])
        self.authority = checked_authority(request.headers.get("host", ""))
        self.api_version = _api_version(request)
        self._authorizer = authorizer
        self._budget = budget
        #: The authorization rule behind the last right that was asked for and is held.
        self._allowing_rule = ""
        #: Of the body, as long as it is needed: given back by `close`.
        self._held_bytes = 0
        #: The body has been read to its end.
        self.is_read = False
        #: When a client that finds the server busy is asked to come back; None: as the service says it (ERR-17).
        self.retry_after_s: int | None = None

    @property
    def root(self) -> str:
        return f"{self.request.url.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """Absolute, with the query as requested."""
        query = self.request.scope["query_string"].decode("latin-1")
        return f"{self.root}/{self.path}" + (f"?{query}" if query else "")

    @property
    def caller(self) -> str:
        """Who asks, for a fair share: a peer and the key that it was allowed by."""
        peer = self.request.client
        return f"{'' if peer is None else peer.host} {self._allowing_rule}"

    def require(self, right: str, owner_key: str | None = None) -> Grant:
        """The caller holds a token that allows `right` on this path (A-6, A-9). Raises 401s. `owner_key`: of the
        event hub that the request is for."""
        grant = self._authorizer.grant_of_token(self._token("authorization"), f"{self.root}/{self.path}")
        return self._authorised(grant, self.path, right, owner_key)

    def require_on_namespace(self, *rights: str) -> Grant:
        """One of the rights on the namespace as a whole: a rule of one entity never counts. Raises 401s."""
        grant = self._authorizer.grant_of_token(self._token("authorization"), f"{self.root}/")
        for right in rights[:-1]:
            try:
                return self._authorised(grant, "", right)
            except Unauthorized:
                continue
        return self._authorised(grant, "", rights[-1])

    def require_any(self, below: str) -> None:
        """The caller holds a token for this path, whatever it allows there. Raises 401s."""
        grant = self._authorizer.grant_of_token(self._token("authorization"), f"{self.root}/{below}")
        if not self._authorizer.is_valid(grant):
            raise Unauthorized("Unauthorized access: the token allows nothing.")

    def _authorised(self, grant: Grant, path: str, right: str, owner_key: str | None = None) -> Grant:
        allowing = self._authorizer.authorise([grant], path, right, owner_key)
        self._allowing_rule = allowing.rule_name
        note_caller(allowing.rule_name)
        return allowing

    def require_for(
        self, entity_path: str, asked_for: str, right: str, owner_key: str | None = None
    ) -> Grant:
        """The same for an address that belongs to an entity (`orders/messages/head`): the token may be for as
        little as `asked_for`, its rule may be the entity's own."""
        token = self._token("authorization")
        grant = self._authorizer.grant_of_token(token, f"{self.root}/{asked_for}", entity_path)
        return self._authorised(grant, entity_path, right, owner_key)

    def require_on(self, target: str, right: str, header: str) -> None:
        """The same for another entity of the namespace, by the caller's token or by the one in `header`."""
        audience = f"{self.root}/{target}"
        names = [name for name in ("authorization", header) if name in self.request.headers]
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

    def body_bytes(self, bytes_max: int) -> int:
        """How much memory the body may take: as its client says, or as much as is allowed."""
        if "transfer-encoding" in self.request.headers:
            return bytes_max
        return min(self._declared_bytes(), bytes_max)

    def _declared_bytes(self) -> int:
        declared = self.request.headers.get("content-length", "0")
        return int(declared) if declared.isdigit() else 0

    async def body(
        self,
        bytes_max: int = BODY_BYTES_MAX,
        refusal: Callable[[str], BrokerError | HttpRefusal] = BadArgument,
    ) -> bytes:
        """At most `bytes_max`, else `refusal`; within 30 seconds."""
        too_large = refusal(f"The body has more than {bytes_max} bytes.")
        if self._declared_bytes() > bytes_max:
            raise too_large
        try:
            async with asyncio.timeout(_BODY_S):
                return await self._read(bytes_max, too_large)
        except TimeoutError as error:
            raise OperationTimedOut(f"The body did not arrive within {_BODY_S:.0f} seconds.") from error

    def close(self) -> None:
        """The request is answered."""
        if self._budget is not None:
            self._budget.add(-self._held_bytes)
        self._held_bytes = 0

    def _hold(self, size_bytes: int) -> None:
        """Raises ServerBusy for a large body while all connections hold too much."""
        if self._budget is None:
            return
        self._held_bytes += size_bytes
        self._budget.add(size_bytes)
        if self._held_bytes > SMALL_BYTES and self._budget.is_over:
            raise ServerBusy("All connections hold more memory than they may. Please try again later.")

    async def _read(self, bytes_max: int, too_large: BrokerError | HttpRefusal) -> bytes:
        received: list[bytes] = []  # put together once
        size_bytes = 0
        try:
            async for chunk in self.request.stream():
                received.append(chunk)
                size_bytes += len(chunk)
                self._hold(len(chunk))
                if size_bytes > bytes_max:
                    raise too_large
        except ClientDisconnect as error:
            raise BadArgument("The body ended early.") from error
        self.is_read = True
        return b"".join(received)


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
