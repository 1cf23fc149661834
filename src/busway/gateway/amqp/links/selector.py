"""A JMS selector: the filter of a source that says which messages a receiver wants (`apache.org:selector-filter`).

Its language is close to that of rules, which reads it here: user properties by their names, and those headers of JMS
that are properties of the message under another name. What the language does not know (BETWEEN, JMSPriority …) is
refused with its place or name; nothing is ever left out in silence.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from busway.amqp.types import Char, Described, Symbol
from busway.model.errors import BadArgument, NotImplementedByServer
from busway.rules.errors import FilterError, RuleSyntaxError, shown
from busway.rules.expression import Expression, Property, nodes_of
from busway.rules.filters import compiled_filter
from busway.rules.parse import parse_filter
from busway.rules.printed import printed
from busway.rules.rule import SqlFilter
from busway.subject.message_subject import MessageSubject

if TYPE_CHECKING:
    from busway.amqp.performatives import Source
    from busway.message.message import Message

_SELECTOR: Final = Symbol("apache.org:selector-filter:string")
_SELECTOR_CODE: Final = 0x0000_468C_0000_0004
_NO_LOCAL: Final = Symbol("apache.org:no-local-filter:list")
_NO_LOCAL_CODE: Final = 0x0000_468C_0000_0003
#: Headers of JMS → system properties.
_HEADERS: Final[dict[str, str]] = {
    "JMSMessageID": "MessageId",
    "JMSCorrelationID": "CorrelationId",
    "JMSType": "Label",
    "JMSReplyTo": "ReplyTo",
    "JMSDestination": "To",
    "JMSXGroupID": "SessionId",
}
#: An evaluation counts for so many characters beside those that it walks over.
_EVALUATION_CHARACTERS: Final = 500


class Selector:
    """`sql` is the same in the language of rules. A link keeps no more than that: compiled it is much larger,
    and a connection may have many browsers that wait."""

    __slots__ = ("sql",)

    def __init__(self, text: str) -> None:
        """Raises BadArgument with the place of a fault, and NotImplementedByServer."""
        try:
            self.sql = printed(_in_rule_words(parse_filter(text)))
            compiled_filter(SqlFilter(self.sql), _no_id)
        except RuleSyntaxError as fault:
            raise BadArgument(f"The selector cannot be read. {fault.sentence}") from None

    def compiled(self) -> CompiledSelector:
        return CompiledSelector(self.sql)


class CompiledSelector:
    """For one page."""

    __slots__ = ("_filter",)

    def __init__(self, sql: str) -> None:
        self._filter = compiled_filter(SqlFilter(sql), _no_id)

    def selects(self, message: Message) -> bool:
        try:
            return self._filter.matches(MessageSubject(message))
        except FilterError:
            return False  # what cannot be evaluated is not true

    def cost(self) -> int:
        """Of the last evaluation, in characters."""
        return _EVALUATION_CHARACTERS + self._filter.walked()


def has_selector(source: Source | None) -> bool:
    """Without looking closer."""
    if source is None or not source.filter:
        return False
    kinds = [
        value.descriptor if isinstance(value, Described) else name for name, value in source.filter.items()
    ]
    return _SELECTOR in kinds or _SELECTOR_CODE in kinds


def selector_of(source: Source | None) -> Selector | None:
    """The selector of a receiver, if it has one. Raises BadArgument, NotImplementedByServer."""
    text = _text_of(source)
    return None if text is None else Selector(text)


def _text_of(source: Source | None) -> str | None:
    if source is None or not source.filter:
        return None
    found: str | None = None
    for name, value in source.filter.items():
        kind: object = value.descriptor if isinstance(value, Described) else name
        if kind in (_NO_LOCAL, _NO_LOCAL_CODE):
            raise NotImplementedByServer(
                "A receiver cannot leave out what its own connection has sent (a no-local filter): "
                "give the messages a property and select by it."
            )
        if kind not in (_SELECTOR, _SELECTOR_CODE):
            continue
        text: object = value.value if isinstance(value, Described) else value
        if not isinstance(text, str) or isinstance(text, Symbol | Char):
            raise BadArgument("The selector must be a string.")
        if found is not None:
            raise BadArgument("A receiver has one selector at most.")
        found = text
    return found


def check_unselected(source: Source | None, path: str) -> None:
    """A receiver that takes messages would have to pass by those that do not fit, however many, each time anew: rules
    decide once, when a message comes."""
    if _text_of(source) is not None:
        raise NotImplementedByServer(
            f"A receiver of '{path}' cannot have a selector. Send to a topic and receive from a subscription with an"
            " SQL rule that says the same; a queue browser can have a selector."
        )


def _in_rule_words(expression: Expression) -> Expression:
    for node in nodes_of(expression):
        if not isinstance(node, Property) or node.is_system or node.name in _HEADERS:
            continue
        if node.name.startswith("JMS"):
            raise NotImplementedByServer(
                f"A selector cannot use {shown(node.name)}; of the headers of JMS it can use"
                f" {', '.join(_HEADERS)}."
            )
    return cast("Expression", _renamed(expression))


def _renamed(part: Any) -> Any:
    """The parser bounds the depth."""
    if isinstance(part, Property):
        known = None if part.is_system else _HEADERS.get(part.name)
        return part if known is None else Property(known, is_system=True)
    if isinstance(part, tuple):
        return tuple(_renamed(one) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: _renamed(getattr(part, field.name)) for field in fields(part)})
    return part


def _no_id() -> UUID:
    """A selector that asks for another id each time means nothing by it."""
    return UUID(int=0)
