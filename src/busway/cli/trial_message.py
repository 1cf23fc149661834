"""A message given as JSON, to try a filter or an action on: what `busway peek --json` prints, or less.

    {"message_id": "m-1", "subject": "order", "time_to_live": "PT1H",
     "application_properties": {"color": "red", "size": 12, "pause": {"Type": "duration", "Value": "PT5S"}}}

System properties may be spelt as the language spells them too (`MessageId`), `properties` is short for
`application_properties`; a body is passed over, because rules never see it (T-2).
"""

from collections.abc import Mapping
from typing import Final

from busway.config.node import Node
from busway.config.values import read_value, write_value
from busway.rules.rule import TypedValue
from busway.rules.subject import ChangeableSubject, folded
from busway.rules.system_properties import CANONICAL
from busway.rules.time_text import instant_of, instant_text
from busway.rules.values import MISSING, Instant, Missing, Span, Value, value_of
from busway.tick_text import format_span, parse_span

_TICKS_PER_MS: Final = 10_000
_USER: Final = ("application_properties", "properties")
#: Of `busway peek --json`, besides the names of the language.
_OTHER_NAMES: Final = {
    "enqueuedtime": "EnqueuedTimeUtc",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "lockeduntil": "LockedUntilUtc",
    "timetolivems": "TimeToLive",
}
_PASSED_OVER: Final = ("body", "bodybase64", "deadletterreason", "deadlettererrordescription")
_MOMENTS: Final = ("EnqueuedTimeUtc", "ScheduledEnqueueTimeUtc", "LockedUntilUtc", "ExpiresAtUtc")
_NUMBERS: Final = ("SequenceNumber", "EnqueuedSequenceNumber", "DeliveryCount", "Size")
_STATES: Final = {"active": 0, "deferred": 1, "scheduled": 2}
#: Shown when a key is not known.
_NAMES: Final = (
    *_USER,
    *("message_id", "subject", "correlation_id", "session_id", "to", "reply_to", "reply_to_session_id"),
    *("content_type", "partition_key", "time_to_live", "scheduled_enqueue_time", "enqueued_time"),
    *("sequence_number", "delivery_count", "state", "body"),
)


class TrialMessage(ChangeableSubject):
    def __init__(self) -> None:
        #: By folded name the name as written, and the value.
        self._user: dict[str, tuple[str, Value]] = {}
        self._system: dict[str, Value] = {}

    @classmethod
    def read(cls, text: str) -> "TrialMessage":
        """Raises ConfigError, whose sentence names the place."""
        root = Node.parse(text)
        if isinstance(root.value, list) and len(root.value) == 1:
            root = root.entries()[0]
        message = cls()
        for name, member in root.any_members().items():
            message._take(name, member)
        return message

    def _take(self, name: str, member: Node) -> None:
        plain = name.replace("_", "").replace("-", "").lower()
        canonical = CANONICAL.get(plain) or _OTHER_NAMES.get(plain)
        if name in _USER:
            for property_name, value in member.any_members().items():
                self.set_user(property_name, _user_value(value))
        elif canonical is not None:
            self._system[canonical] = _system_value(canonical, member, is_ms=plain.endswith("ms"))
        elif plain not in _PASSED_OVER:
            raise member.unknown(list(_NAMES))

    def user(self, folded_name: str) -> Value | Missing:
        found = self._user.get(folded_name)
        return MISSING if found is None else found[1]

    def system(self, name: str) -> Value:
        return self._system.get(name)

    def set_user(self, name: str, value: Value) -> None:
        self._user[folded(name)] = (name, value)

    def remove_user(self, folded_name: str) -> None:
        self._user.pop(folded_name, None)

    def set_system(self, name: str, value: Value) -> None:
        self._system[name] = value

    def as_object(self) -> dict[str, object]:
        """What is there, under the names of the language; `user` properties under their own."""
        return {
            "properties": {name: plain(value) for name, value in self._user.values()},
            **{f"sys.{name}": plain(value) for name, value in self._system.items() if value is not None},
        }


def plain(value: Value) -> object:
    """A value as JSON can say it; the form in which the file gives it."""
    if isinstance(value, Instant):
        return {"Type": "dateTime", "Value": instant_text(value)}
    if isinstance(value, Span):
        return {"Type": "duration", "Value": format_span(value.ticks)}
    if isinstance(value, float):
        return write_value(TypedValue("double", value))
    return value if value is None or isinstance(value, str | int) else str(value)


def _user_value(node: Node) -> Value:
    return None if node.value is None else value_of(node.path, read_value(node))


def _system_value(name: str, node: Node, *, is_ms: bool) -> Value:
    value = node.value
    if value is None or isinstance(value, Mapping):
        return _user_value(node)
    if name in _MOMENTS:
        moment = instant_of(node.text())
        if moment is None:
            raise node.error("a time such as 2030-01-01T08:00:00Z is expected")
        return moment
    if name == "TimeToLive":
        return Span(node.whole_number() * _TICKS_PER_MS) if is_ms else _span(node)
    if name in _NUMBERS:
        return node.whole_number()
    if name == "State":
        return _STATES.get(value, -1) if isinstance(value, str) else node.whole_number()
    return node.flag() if name == "ForcePersistence" else node.text()


def _span(node: Node) -> Value:
    try:
        return Span(parse_span(node.text()))
    except ValueError as error:
        raise node.error(str(error)) from None
