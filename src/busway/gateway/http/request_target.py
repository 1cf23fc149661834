"""Request targets that are written in full: `GET https://HOST/path HTTP/1.1` means `/path` of HOST (RFC 9112 3.2.2).

Java's SDKs upgrade to WebSocket that way. Such a request is read as what it says: its host stands in the target, and
the Host header is ignored. From here on everybody sees a path and a Host header, whichever way they came in.
"""

import re
from typing import Final

import h11

_SCHEME: Final = re.compile(rb"(?:https?|wss?)://", re.IGNORECASE)
_ANY_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,31}:")
#: As in a Host header: no user, no escapes.
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def in_origin_form(request: h11.Request) -> h11.Request:
    """The same request with a path for its target. Raises h11.RemoteProtocolError for a target that is no address."""
    target: bytes = request.target
    if target.startswith(b"/"):
        return request
    scheme = _SCHEME.match(target)
    if scheme is None:
        if _ANY_SCHEME.match(target) is None:
            return request  # the gateway has words for a path without a slash
        raise h11.RemoteProtocolError("the target is an address of another kind")
    rest = target[scheme.end() :]
    authority = _AUTHORITY.match(rest)
    if authority is None or rest[authority.end() : authority.end() + 1] not in (b"", b"/", b"?"):
        raise h11.RemoteProtocolError("the target does not name a host")
    path = rest[authority.end() :]
    headers = [(name, value) for name, value in request.headers.raw_items() if name.lower() != b"host"]
    return h11.Request(
        method=request.method,
        target=path if path.startswith(b"/") else b"/" + path,
        headers=[(b"Host", authority.group()), *headers],
        http_version=request.http_version,
    )
