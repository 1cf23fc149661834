"""Who may do what: shared access signatures, keys of SASL PLAIN, the ONE check for every route; and who asks.

Theory of operation. A token or a key is turned once into a `Grant`. A grant is never trusted by itself: each
`authorise` looks the rule up again, so a token ends with its expiry, with its rule, with its key (A-10) and with
the entity it belonged to (E-86), and the rights are those the rule has now.

Three paths meet, all as lower-cased segments, so that `queue1` never opens `queue10`:

  scope     what the token's `sr` names: signed by the key's holder
  audience  what the client asked for with it: at or below the scope. A grant opens the audience and below,
            not more, even when the scope is wider (A-7: links are checked against the tokens whose `name`
            covers their path)
  level     where the rule stands: the namespace or one entity. A queue's rule opens that queue and its
            sub-queues, never a queue whose name merely lies below it; a topic's rule opens its
            subscriptions too

Nothing here tells an unknown rule from a wrong signature, in words or in time.

The caller is who asked for what is being done: the name of the authorization rule, for the operations log (O-7).
It travels with the context of the task that serves the request, so nothing between the gateway and the namespace
has to carry it: a gateway notes it when it has authorised, whoever writes a record reads it. Tasks that a request
starts have it too; work that nobody asked for (auto-delete, the configuration file at start) has none.
"""

import base64
import hmac
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Protocol
from urllib.parse import unquote

from busway.clock import Clock
from busway.message.message import LAST_INSTANT_MS, NEVER_MS
from busway.model.descriptions import ALL_RIGHTS, MANAGE, ROOT_RULE_NAME, AuthorizationRule
from busway.model.entity_path import MANAGEMENT_KEYWORD, EntityAddress, path_key
from busway.model.errors import AuthenticationFailed, Unauthorized

#: The placeholder that the official emulator's documentation tells people to write.
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"

INVALID_SIGNATURE: Final = 40103
INVALID_AUDIENCE: Final = 40104
MALFORMED: Final = 40105
EXPIRED: Final = 40106
#: Sub-code of each missing part (ERR-42: 40107…40110).
_MISSING: Final = {"sr": 40107, "se": 40108, "skn": 40109, "sig": 40110}

_PREFIX: Final = "sharedaccesssignature "
_TOKEN_CHARACTERS_MAX: Final = 24_576
_URI_CHARACTERS_MAX: Final = 4_096
_PARTS_MAX: Final = 16
_EXPIRY: Final = re.compile(r"[0-9]{1,15}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://")
_PORT: Final = re.compile(r":[0-9]{0,5}$")
_QUERY: Final = re.compile(r"[?#]")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~$-]+")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
#: What an unknown rule is measured against.
_NOBODY: Final = AuthorizationRule("", frozenset(), "nobody's first key", "nobody's second key")

Segments = tuple[str, ...]


class RuleBook(Protocol):
    """The rules as they are now. The namespace is one."""

    def rules(self) -> tuple[AuthorizationRule, ...]:
        """Those of the namespace."""

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        """(incarnation, rules) of the entity under this key (`path_key`), None when there is none."""

    def owner_key(self, key: str) -> str:
        """Of the entity whose rules count at an address: a subscription's are its topic's (A-2, E-61)."""

    def other_owner_key(self, key: str) -> str | None:
        """Of a second entity that has the same address for its own; None where there is none, as it should be."""


@dataclass(frozen=True)
class Level:
    """Where a rule stands: the namespace (`key` is None), or an entity in one of its incarnations."""

    key: str | None = None
    incarnation: int = 0


@dataclass(frozen=True)
class Grant:
    """A verified claim: who may do what below which path until when. Made by `Authorizer` only."""

    rule_name: str
    scope: Segments  # of `sr`; () is the whole namespace
    audience: Segments  # at or below scope: what this grant opens
    rights: frozenset[str]  # when it was made; `authorise` looks at the present ones
    expires_at_ms: int
    level: Level
    key: str = field(repr=False)


@dataclass(frozen=True)
class _Token:
    """A shared access signature taken apart. `scope_text` and `expiry_text` stay as transmitted: they are what
    was signed."""

    scope_text: str
    expiry_text: str
    rule_name: str
    signature: str = field(repr=False)


@dataclass(frozen=True)
class _Place:
    """A URI without scheme, port and query. `is_bare`: it had no scheme, so its first piece is a host only if
    that host is the one asked for (old tokens say `sr=host`)."""

    host: str
    segments: Segments
    is_bare: bool


class Authorizer:
    def __init__(self, rules: RuleBook, clock: Clock, *, accepts_development_key: bool = False) -> None:
        self._rules = rules
        self._clock = clock
        self._accepts_development_key = accepts_development_key

    def grant_of_token(
        self, token: str, audience: str, entity_path: str | None = None, *, asked_host: str = ""
    ) -> Grant:
        """Checks form, rule, signature, expiry, audience in this order (A-4…A-7). Raises
        AuthenticationFailed. `audience` is a URI (`sb://host/orders`) or a path with a leading slash. With
        `entity_path` it is an address inside that entity (`orders/messages`), and the grant opens the entity: for
        one request at that address, never to be kept, because the token's scope may be narrower. `asked_host`: of a
        client that asks for a path; an old token that names nothing but this host is good for it."""
        parts = _parsed(token)
        wanted = _place(audience)
        opened = wanted if entity_path is None else _place(f"/{entity_path}")
        level, rule, key = self._signer(parts, opened)
        expires_at_ms = int(parts.expiry_text) * 1000
        self._check_expiry(expires_at_ms)
        scope = _place(unquote(parts.scope_text))
        if wanted is None or opened is None or scope is None or not _admits(scope, wanted, asked_host):
            raise AuthenticationFailed(
                "InvalidAudience: The authorization header contains a token with a wrong audience.",
                INVALID_AUDIENCE,
            )
        rights = effective_rights(rule)
        return Grant(rule.name, scope.segments, opened.segments, rights, expires_at_ms, level, key)

    def grant_of_key(self, rule_name: str, key: str) -> Grant:
        """SASL PLAIN: a namespace rule's name and one of its keys (A-7). Raises AuthenticationFailed."""
        rule = _named(self._rules.rules(), rule_name)
        found: str | None = None
        for candidate in self._keys(Level(), rule or _NOBODY):
            if _equal(candidate, key):
                found = candidate
        if rule is None or found is None:
            raise _wrong_signature()
        return Grant(rule.name, (), (), effective_rights(rule), NEVER_MS, Level(), found)

    def authorise(
        self, grants: Sequence[Grant], path: str, right: str, owner_key: str | None = None
    ) -> Grant:
        """The grant that allows `right` on `path` now. `path` is the address as asked for: sub-queues and
        `$management` included, percent-decoded, without host. `owner_key`: of the entity that is meant, where the
        address does not say it. Raises Unauthorized (A-6)."""
        for grant in self._opening(grants, path, owner_key):
            if right in self._present_rights(grant):
                return grant
        raise Unauthorized(f"Unauthorized access. '{right}' claim(s) are required to perform this operation.")

    def authorise_any(self, grants: Sequence[Grant], path: str) -> Grant:
        """As `authorise` for what needs a valid token with any right (A-7: attaching to `X/$management`)."""
        for grant in self._opening(grants, path):
            if self.is_valid(grant):
                return grant
        raise Unauthorized(
            "Unauthorized access. 'Send, Listen' claim(s) are required to perform this operation."
        )

    def is_valid(self, grant: Grant) -> bool:
        """Still good: not expired, its rule and key still exist (A-8, A-10)."""
        return bool(self._present_rights(grant))

    def _present_rights(self, grant: Grant) -> frozenset[str]:
        if grant.expires_at_ms <= self._clock.wall_ms():
            return frozenset()
        rule = _named(self._rules_at(grant.level), grant.rule_name)
        if rule is None or not any(_equal(grant.key, key) for key in self._keys(grant.level, rule)):
            return frozenset()
        return effective_rights(rule)

    def _rules_at(self, level: Level) -> tuple[AuthorizationRule, ...]:
        if level.key is None:
            return self._rules.rules()
        found = self._rules.entity_rules(level.key)
        return () if found is None or found[0] != level.incarnation else found[1]

    def _keys(self, level: Level, rule: AuthorizationRule) -> tuple[str, ...]:
        keys = (rule.primary_key, rule.secondary_key)
        is_root = level.key is None and rule.name == ROOT_RULE_NAME
        return (*keys, DEVELOPMENT_KEY) if is_root and self._accepts_development_key else keys

    def _signer(self, token: _Token, wanted: _Place | None) -> tuple[Level, AuthorizationRule, str]:
        """The rule and key that signed: of the entity that is asked for, or of the namespace. Every candidate
        is measured, also after a match."""
        signed = f"{token.scope_text}\n{token.expiry_text}".encode()
        found: tuple[Level, AuthorizationRule, str] | None = None
        for level, rule in self._candidates(token.rule_name, wanted):
            for key in self._keys(level, rule):
                if _equal(_signature(key, signed), token.signature) and rule is not _NOBODY:
                    found = found or (level, rule, key)
        if found is None:
            raise _wrong_signature()
        return found

    def _candidates(self, rule_name: str, wanted: _Place | None) -> list[tuple[Level, AuthorizationRule]]:
        key = "" if wanted is None else self._entity_key(wanted.segments)
        shared = _named(self._rules.rules(), rule_name)
        found = [self._of_entity(key, rule_name), (Level(), shared or _NOBODY)]
        other = self._rules.other_owner_key(key) if key else None
        return found if other is None else [*found, self._of_entity(other, rule_name)]

    def _of_entity(self, key: str, rule_name: str) -> tuple[Level, AuthorizationRule]:
        entity = self._rules.entity_rules(key) if key else None
        own = None if entity is None else _named(entity[1], rule_name)
        return Level(key, 0 if entity is None else entity[0]), own or _NOBODY

    def _opening(self, grants: Sequence[Grant], path: str, owner_key: str | None = None) -> list[Grant]:
        """Those grants whose audience and level open the path, whatever they are worth now."""
        segments = path_segments(path)
        if segments is None:
            return []
        key = self._entity_key(segments) if owner_key is None else owner_key
        return [
            grant
            for grant in grants
            if _covers(grant.audience, segments) and (grant.level.key is None or grant.level.key == key)
        ]

    def _entity_key(self, segments: Segments) -> str:
        return self._rules.owner_key(EntityAddress.parse("/".join(segments)).key)

    def _check_expiry(self, expires_at_ms: int) -> None:
        now_ms = self._clock.wall_ms()
        if expires_at_ms <= now_ms:
            raise AuthenticationFailed(
                f"ExpiredToken: The token is expired. Expiration time: '{_time(expires_at_ms)}',"
                f" current time: '{_time(now_ms)}'.",
                EXPIRED,
            )


def effective_rights(rule: AuthorizationRule) -> frozenset[str]:
    """Manage includes Send and Listen (A-1)."""
    return ALL_RIGHTS if MANAGE in rule.rights else rule.rights


def path_segments(path: str) -> Segments | None:
    """Lower-cased segments of a percent-decoded path; None when it is not clean (`..`, `//`, odd letters)."""
    text = path.removeprefix("/").removesuffix("/")
    if text == "":
        return ()
    segments = tuple(text.lower().split("/")) if text.isascii() else ("",)
    clean = all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments)
    return segments if clean else None


def _parsed(token: str) -> _Token:
    if len(token) > _TOKEN_CHARACTERS_MAX or not token.isascii():
        raise _malformed("it is too long or holds characters outside ASCII")
    if token[: len(_PREFIX)].lower() != _PREFIX:
        raise _malformed("it does not start with 'SharedAccessSignature '")
    parts = _parts(token[len(_PREFIX) :].strip())
    for name, sub_code in _MISSING.items():
        if not parts.get(name):
            raise AuthenticationFailed(f"MalformedToken: The token lacks its '{name}' part.", sub_code)
    if _EXPIRY.fullmatch(parts["se"]) is None:
        raise _malformed("its 'se' part is not a number of seconds")
    return _Token(parts["sr"], parts["se"], unquote(parts["skn"]), unquote(parts["sig"]))


def _parts(text: str) -> dict[str, str]:
    """A query string whose values stay encoded: `sr` is signed as it was transmitted (A-4)."""
    pieces = text.split("&")
    if len(pieces) > _PARTS_MAX:
        raise _malformed("it has too many parts")
    parts: dict[str, str] = {}
    for piece in pieces:
        name, _, value = piece.partition("=")
        if name in parts:
            raise _malformed("one of its parts comes twice")
        parts[name] = value
    return parts


def _place(uri: str) -> _Place | None:
    """Host and path of a URI that was percent-decoded once; None when it is not clean, so names nothing."""
    if len(uri) > _URI_CHARACTERS_MAX:
        return None
    scheme = _SCHEME.match(uri)
    rest = _QUERY.split(uri if scheme is None else uri[scheme.end() :], maxsplit=1)[0]
    authority, _, path = rest.partition("/")
    segments = path_segments(path)
    if segments is None:
        return None
    if len(segments) > 1 and segments[-1] == MANAGEMENT_KEYWORD:
        # The management node of X is X under another name: a token for it is a token for X.
        segments = segments[:-1]
    return _Place(_host(authority), segments, scheme is None)


def _host(authority: str) -> str:
    return _PORT.sub("", authority.lower())


def _admits(scope: _Place, wanted: _Place, asked_host: str) -> bool:
    if not _covers(scope.segments, wanted.segments):
        return False
    if scope.is_bare and wanted.host == "" and asked_host:
        wanted = replace(wanted, host=_host(asked_host))
    return _same_host(scope, wanted)


def _same_host(scope: _Place, wanted: _Place) -> bool:
    """Host against host; the names of this machine are one. A path without a host fits every host, but a bare
    scope must name the host: `sr=orders` is not the whole namespace."""
    if scope.host == wanted.host or (scope.host in _LOOPBACK and wanted.host in _LOOPBACK):
        return True
    return scope.host == "" or (wanted.host == "" and not scope.is_bare)


def _covers(upper: Segments, lower: Segments) -> bool:
    return lower[: len(upper)] == upper


def _named(rules: tuple[AuthorizationRule, ...], name: str) -> AuthorizationRule | None:
    wanted = path_key(name)
    return next((rule for rule in rules if path_key(rule.name) == wanted), None)


def _signature(key: str, signed: bytes) -> str:
    return base64.b64encode(hmac.new(key.encode(), signed, sha256).digest()).decode("ascii")


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(
        first.encode("utf-8", "surrogatepass"), second.encode("utf-8", "surrogatepass")
    )


def _time(at_ms: int) -> str:
    if at_ms > LAST_INSTANT_MS:
        return "9999-12-31T23:59:59Z"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wrong_signature() -> AuthenticationFailed:
    return AuthenticationFailed("InvalidSignature: The token has an invalid signature.", INVALID_SIGNATURE)


def _malformed(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"MalformedToken: The token cannot be read: {why}.", MALFORMED)


NOBODY: Final = ""

_caller: ContextVar[str] = ContextVar("busway_caller", default=NOBODY)


def note_caller(rule_name: str) -> None:
    """For the rest of this task. A name, never a key or a token."""
    _caller.set(rule_name)


def present_caller() -> str:
    return _caller.get()
