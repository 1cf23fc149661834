"""Names of entities, and the addresses under which they are reached (E-2…E-8).

Only plain ASCII names exist, so no look-alike letter, control character or dot-dot can ever reach a
comparison as something else: a path that is not clean is simply the path of nothing.
"""

import re
from dataclasses import dataclass
from typing import Final

from busway.model.errors import BadArgument, EntityAlreadyExists, EntityNotFound
from busway.rules.rule import DEFAULT_RULE_NAME

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+")
_SHOWN_CHARACTERS_MAX: Final = 300

DEAD_LETTER_KEYWORD: Final = "$DeadLetterQueue"
TRANSFER_KEYWORD: Final = "$Transfer"
MANAGEMENT_KEYWORD: Final = "$management"
#: `T/Subscriptions/S` is the address of a subscription (E-8), so no entity can bear such a path.
_SUBSCRIPTIONS_KEYWORD: Final = "subscriptions"


def path_key(path: str) -> str:
    """What the path is found under (E-7). Text outside ASCII keeps its case: the Kelvin sign lowers to a
    plain `k`, and must not find it."""
    return path.lower() if path.isascii() else path


def subscription_path(topic_path: str, name: str) -> str:
    """E-8, in the spelling that clients look for in the ids of ATOM entries."""
    return f"{topic_path}/Subscriptions/{name}"


def topic_key_of(subscription_key: str) -> str:
    return subscription_key.split(f"/{_SUBSCRIPTIONS_KEYWORD}/")[0]


def topic_path_of(path: str) -> str:
    """The topic's path for the address of a subscription; any other path as it is."""
    head, separator, _ = path.lower().partition(f"/{_SUBSCRIPTIONS_KEYWORD}/")
    return path[: len(head)] if separator and path.isascii() else path


def check_path(path: str, characters_max: int = 260) -> None:
    """Raises BadArgument with a sentence when no entity may be called so (E-2, E-5, E-6)."""
    if path == "":
        raise BadArgument("The name of an entity cannot be empty.")
    if len(path) > characters_max:
        raise BadArgument(
            f"The name {shown(path)} has {len(path)} characters; at most {characters_max} are allowed."
        )
    if path.startswith("/") or path.endswith("/"):
        raise BadArgument(f"The name {shown(path)} cannot start or end with '/'.")
    for position, segment in enumerate(path.split("/")):
        _check_segment(path, segment, position)


def _check_segment(path: str, segment: str, position: int) -> None:
    if segment == "":
        raise BadArgument(f"The name {shown(path)} has an empty segment ('//').")
    if segment.startswith("$"):
        raise BadArgument(
            f"The name {shown(path)} cannot be used: segments that start with '$' are reserved."
        )
    if _SEGMENT.fullmatch(segment) is None:
        raise BadArgument(
            f"The name {shown(path)} has a character that is not allowed. Each segment may hold the letters"
            " A-Z and a-z, digits, '.', '-', '_' and '~'; segments are separated by '/'."
        )
    if segment.strip(".") == "":
        raise BadArgument(f"The name {shown(path)} has a segment that consists of dots only.")
    if position > 0 and segment.lower() == _SUBSCRIPTIONS_KEYWORD:
        raise BadArgument(
            f"The name {shown(path)} cannot be used: '/{segment}/' is part of a subscription's address."
        )


def check_name(kind: str, name: str, characters_max: int = 50) -> None:
    """Raises BadArgument when no subscription, or no rule, may be called so (E-3, E-6)."""
    if not 1 <= len(name) <= characters_max:
        raise BadArgument(
            f"The name {shown(name)} of a {kind} has {len(name)} characters; 1 to {characters_max} are allowed."
        )
    if name == DEFAULT_RULE_NAME and kind == "rule":
        return
    if _SEGMENT.fullmatch(name) is None or name.strip(".") == "":
        raise BadArgument(
            f"The name {shown(name)} of a {kind} has a character that is not allowed. It may hold the letters"
            " A-Z and a-z, digits, '.', '-', '_' and '~'."
        )


def shown(path: str) -> str:
    """The path in quotes for a sentence: bounded, and control characters made visible."""
    cut = path if len(path) <= _SHOWN_CHARACTERS_MAX else path[:_SHOWN_CHARACTERS_MAX] + "…"
    return "'" + "".join(letter if letter.isprintable() else "�" for letter in cut) + "'"


def not_found(namespace_name: str, path: str) -> EntityNotFound:
    """The sentence that two SDKs parse to tell a missing entity from other failures."""
    return EntityNotFound.at(_url(namespace_name, path))


def already_exists(namespace_name: str, path: str) -> EntityAlreadyExists:
    """Programs match this one too."""
    return EntityAlreadyExists.at(_url(namespace_name, path))


def _url(namespace_name: str, path: str) -> str:
    """Gateways write the host by which the client knows us in the place of the name (`gateway.tracking`)."""
    return f"sb://{namespace_name}/{shown(path)[1:-1]}"


@dataclass(frozen=True)
class EntityAddress:
    """What an AMQP node name or an HTTP path points at (E-8). `path` is the entity's own part, as written."""

    path: str
    dead_letter: bool = False
    transfer_dead_letter: bool = False
    management: bool = False

    @property
    def key(self) -> str:
        return path_key(self.path)

    @classmethod
    def parse(cls, text: str) -> "EntityAddress":
        """From percent-decoded text without scheme and host; one slash at either end is forgiven. Never
        raises: what makes no sense stays in `path`, where no entity can be found."""
        segments = text.removeprefix("/").removesuffix("/").split("/")
        management = _ends_with(segments, MANAGEMENT_KEYWORD)
        if management:
            segments.pop()
        dead_letter = len(segments) > 1 and _ends_with(segments, DEAD_LETTER_KEYWORD)
        if dead_letter:
            segments.pop()
        transfer = dead_letter and len(segments) > 1 and _ends_with(segments, TRANSFER_KEYWORD)
        if transfer:
            segments.pop()
        return cls("/".join(segments), dead_letter and not transfer, transfer, management)


def _ends_with(segments: list[str], keyword: str) -> bool:
    return bool(segments) and path_key(segments[-1]) == keyword.lower()
