"""The wrappers of AMQP types, and errors as values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from busway.amqp.errors import AmqpError, Condition, ProtocolViolation, Scope
from busway.amqp.types import Array, Described, Symbol, UInt, ULong


def test_wrappers_compare_like_what_they_wrap() -> None:
    """M-31: code that looks up a key or compares a number need not know the AMQP type."""
    assert UInt(5) == 5
    assert dict[str, int]({Symbol("operation"): 1})["operation"] == 1
    assert Symbol("a") + "b" == "ab"


def test_described_values_and_arrays_compare_by_content() -> None:
    """M-32: equal descriptor and value; never equal to the bare value, never hashable."""
    assert Described(ULong(1), "x") == Described(ULong(1), "x")
    assert Described(ULong(1), "x") != Described(ULong(2), "x")
    assert Described(ULong(1), "x") != "x"
    assert Array([1, 2]) == Array([1, 2], 0x81)
    assert Array([1, 2]) != Array([1, 2], 0x81, (Symbol("d"),))
    assert Array([1]) != [1]
    assert len(Array([1, 2])) == 2
    for unhashable in (Described(1, 2), Array([])):
        with pytest.raises(TypeError):
            hash(unhashable)


def test_reprs_show_what_is_inside() -> None:
    """AMQP 1.6: a failing test or a log line shows the value."""
    assert repr(Described(Symbol("d"), 5)) == "Described('d', 5)"
    assert "0x98" in repr(Array([], 0x98))
    assert repr(AmqpError("amqp:not-found", "gone")) == "AmqpError('amqp:not-found', 'gone', None)"


def test_errors_are_values() -> None:
    """AMQP 2.8.14: equal when condition, description and info are."""
    error = AmqpError(Condition.NOT_FOUND, "gone", {"a": 1})
    assert error == AmqpError("amqp:not-found", "gone", {"a": 1})
    assert error != AmqpError("amqp:not-found", "gone")
    assert error != "amqp:not-found"
    assert hash(error) == hash(AmqpError("amqp:not-found", "gone"))


def test_a_violation_says_what_ends() -> None:
    """AMQP 2.8.14: the scope of a violation is the connection, a session or a link."""
    violation = ProtocolViolation(Scope.SESSION, Condition.SESSION_HANDLE_IN_USE, "handle 3 is in use")
    assert violation.scope == "session"
    assert violation.error() == AmqpError("amqp:session:handle-in-use", "handle 3 is in use")
    assert str(violation) == "amqp:session:handle-in-use: handle 3 is in use"


CONDITIONS = {value for name, value in vars(Condition).items() if name.isupper()}


@pytest.mark.parametrize(
    "condition",
    [
        "amqp:not-found",
        "com.microsoft:entity-already-exists",
        "com.microsoft:entity-disabled",
        "amqp:unauthorized-access",
        "com.microsoft:auth-failed",
        "com.microsoft:publisher-revoked",
        "amqp:not-allowed",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "amqp:resource-limit-exceeded",
        "amqp:link:message-size-exceeded",
        "com.microsoft:message-lock-lost",
        "com.microsoft:session-lock-lost",
        "com.microsoft:session-cannot-be-locked",
        "com.microsoft:message-not-found",
        "com.microsoft:session-not-found",
        "com.microsoft:timeout",
        "com.microsoft:server-busy",
        "amqp:internal-error",
        "amqp:not-implemented",
        "com.microsoft:no-matching-subscription",
        "amqp:link:stolen",
        "amqp:link:detach-forced",
        "amqp:connection:forced",
        "com.microsoft:operation-cancelled",
        "com.microsoft:precondition-failed",
        "com.microsoft:entity-updated",
        "com.microsoft:dead-letter",
        "amqp:transaction:rollback",
        "amqp:transaction:unknown-id",
        "amqp:transaction:timeout",
        "amqp:connection:framing-error",
        "amqp:session:unattached-handle",
        "amqp:decode-error",
    ],
)
def test_every_condition_has_a_name(condition: str) -> None:
    """The conditions that go over the wire are spelled in one place, as symbols."""
    assert condition in CONDITIONS


def test_conditions_are_symbols_and_unique() -> None:
    """`errorCondition` travels as a symbol."""
    named = [value for name, value in vars(Condition).items() if name.isupper()]
    assert len(named) == len(set(named))
    assert all(type(value) is Symbol for value in named)
    assert all(re.fullmatch(r"(amqp|com\.microsoft)(:[a-z-]+){1,2}", value) for value in named)


def test_no_condition_is_spelled_twice_in_the_engine() -> None:
    """The engine names conditions through Condition only."""
    folder = Path(__file__).parents[3] / "src" / "busway" / "amqp"
    spelled = re.compile(r'"(amqp:(?!\w[\w-]*:(?:list|map|binary|\*))[a-z:-]+|com\.microsoft:[a-z-]+)"')
    for path in folder.glob("*.py"):
        if path.name != "errors.py":
            for found in spelled.findall(path.read_text()):
                assert found not in CONDITIONS, f"{path.name} spells {found}"
