"""Copies that actions change: what leaves is a message that every client can read."""

from __future__ import annotations

from uuid import UUID

import pytest

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Char, Int, Symbol, UInt, ULong
from busway.gateway.amqp.message_mapping import message_of, peeked_payload
from busway.message.message_subject import changed_copy
from busway.rules.compiled_rule import ActingRule, compiled_action
from busway.rules.rule import SqlAction


def changed(message: AmqpMessage, action: str) -> AmqpMessage:
    rule = ActingRule("the rule", compiled_action(SqlAction(action), lambda: UUID(int=1)))
    return decode_message(peeked_payload(changed_copy(message_of(encode_message(message), False), rule)))


@pytest.mark.parametrize("given", ["plain", Symbol("symbol"), Char("c")], ids=repr)
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("Label", "subject"),
        ("To", "to"),
        ("ReplyTo", "reply_to"),
        ("MessageId", "message_id"),
        ("CorrelationId", "correlation_id"),
        ("SessionId", "group_id"),
        ("ReplyToSessionId", "reply_to_group_id"),
    ],
)
def test_a_text_of_the_message_is_a_string_whatever_it_was_made_of(name: str, field: str, given: str) -> None:
    """T-51, M-28: symbols and characters are texts to rules, and no client reads them in such a place."""
    message = AmqpMessage([b"body"], DATA, application_properties={"given": given})
    found = getattr(changed(message, f"SET sys.{name} = given").properties, field)
    assert (type(found), found) == (str, str(given))


def test_the_content_type_is_a_text_elsewhere_and_a_symbol_in_its_place() -> None:
    """T-51, M-10: it is the one text that AMQP has as a symbol."""
    message = AmqpMessage(
        [b"body"], DATA, properties=Properties(content_type=Symbol("text/plain"), subject="s")
    )
    action = "SET sys.SessionId = sys.ContentType; SET sys.ContentType = sys.Label; SET was = sys.SessionId"
    found = changed(message, action)
    assert found.properties is not None
    assert (type(found.properties.group_id), found.properties.group_id) == (str, "text/plain")
    assert (type(found.properties.content_type), found.properties.content_type) == (Symbol, "s")
    assert found.application_properties == {"was": "text/plain", "RuleName": "the rule"}


@pytest.mark.parametrize("message_id", ["m", UUID(int=3), ULong(7), b"binary"], ids=repr)
@pytest.mark.parametrize(
    ("kind", "body"), [(DATA, [b"a", b"b"]), (VALUE, {"k": [1, "2"]}), (SEQUENCE, [[1, 2], ["a"]])]
)
def test_what_an_action_does_not_name_stays_as_it_was(kind: int, body: object, message_id: object) -> None:
    """T-6, M-28: sections, types of ids and of properties, annotations of the sender."""
    properties = Properties(message_id=message_id, user_id=b"u", group_sequence=UInt(4), to="t")
    message = AmqpMessage(
        body,
        kind,
        properties=properties,
        application_properties={"a": Int(1), "kept": Int(2)},
        message_annotations={Symbol("mine"): 1},
        delivery_annotations={Symbol("theirs"): 2},
        footer={Symbol("foot"): 3},
    )
    found = changed(message, "SET a = a + 1; SET sys.Label = 'l'")
    assert (found.body, found.body_kind, found.footer) == (body, kind, {"foot": 3})
    assert found.properties is not None
    kept = (found.properties.message_id, found.properties.user_id, found.properties.group_sequence)
    assert kept == (message_id, b"u", 4)
    assert type(found.properties.message_id) is type(message_id)
    assert (found.properties.to, found.properties.subject) == ("t", "l")
    assert found.application_properties == {"a": 2, "kept": 2, "RuleName": "the rule"}
    assert type(found.application_properties["a"]) is Int
    assert (found.message_annotations or {})["mine"] == 1
    assert (found.delivery_annotations or {})["theirs"] == 2
