"""Random rules and messages out of a seed: whatever a sender may send and the language can say."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from busway.amqp.types import (
    Byte,
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from busway.model.description_checks import check_rule
from busway.rules.expression import (
    And,
    Arithmetic,
    Comparison,
    Existence,
    Expression,
    Likeness,
    Literal,
    Membership,
    NewId,
    Not,
    NullTest,
    Operand,
    Or,
    Parameter,
    Property,
    PropertyOf,
    Sign,
)
from busway.rules.printed import printed
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway_spark.property_types import types_of
from busway_spark.servicebus.variant import json_of

#: As rules write them; messages write them in other cases.
NAMES: Final = ("a", "b", "size", "status", "straße")
SPELLINGS: Final = (
    "a",
    "A",
    "b",
    "B",
    "size",
    "Size",
    "ſize",
    "Status",
    "ſtatus",
    "ﬆatus",
    "STRASSE",
    "straße",
)
SYSTEM_TEXTS: Final = (
    "MessageId",
    "Label",
    "CorrelationId",
    "SessionId",
    "PartitionKey",
    "To",
    "ContentType",
)
SYSTEM_NAMES: Final = (*SYSTEM_TEXTS, "TimeToLive", "ScheduledEnqueueTimeUtc", "SequenceNumber", "State")
TEXTS: Final = (
    "",
    "a",
    "b",
    "ab",
    "aab",
    "a%",
    "_b",
    "%",
    "1",
    "x.*y",
    "it's",
    "é€😀",
    "a\nb",
    "Z",
    "true",
    "\\",
)
INTEGERS: Final = (0, 1, -1, 2, 3, 7, 10, 255, 65536, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63) + 1)
DOUBLES: Final = (0.0, -0.0, 1.0, 2.5, -0.5, 0.1, 1e300, 1e-7, 7.0, 9007199254740993.0, 1e16)
AN_ID: Final = UUID("12345678-1234-5678-1234-567812345678")
MOMENT: Final = datetime(2026, 11, 15, 12, 30, 15, 250_000, UTC)
MOMENT_TICKS: Final = 638_987_922_152_500_000
PARAMETERS: Final = (
    ("@text", TypedValue("string", "a%")),
    ("@int", TypedValue("int", 1)),
    ("@yes", TypedValue("boolean", True)),
    ("@double", TypedValue("double", 2.5)),
    ("@moment", TypedValue("dateTime", MOMENT_TICKS)),
    ("@span", TypedValue("duration", 600_000_000)),
)


class RandomRules:
    """The same seed gives the same rules and messages."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    # -- messages, as rows of captured files

    def row(self, number: int) -> dict[str, object]:
        chance = self._chance
        properties = {
            name: self._value()
            for name in chance.sample(SPELLINGS, chance.choice((0, 2, 4, 6, len(SPELLINGS))))
        }
        enqueued = MOMENT + timedelta(seconds=number)
        row: dict[str, object] = {
            "sequenceNumber": number,
            "enqueuedTime": enqueued,
            "properties": json_of(properties),
            "propertyTypes": types_of(properties),
            "expiresAt": enqueued + timedelta(milliseconds=chance.choice((0, 60_000)))
            if self._one_in(3)
            else None,
            "scheduledEnqueueTime": MOMENT if self._one_in(4) else None,
            "body": b"body",
        }
        columns = ("messageId", "subject", "correlationId", "sessionId", "partitionKey", "to", "contentType")
        row.update({name: chance.choice(TEXTS) for name in columns if not self._one_in(3)})
        if "contentType" in row:
            row["contentType"] = str(row["contentType"]).encode("ascii", "ignore").decode()
        return row

    def _value(self) -> object:
        chance = self._chance
        kinds = (
            lambda: None,
            lambda: chance.random() < 0.5,
            lambda: chance.choice(TEXTS),
            lambda: chance.choice(TEXTS),
            lambda: Symbol(chance.choice(("a", "ab"))),
            lambda: Char("a"),
            lambda: chance.choice(INTEGERS),
            lambda: chance.randint(-3, 12),
            lambda: chance.choice((UByte, UShort, UInt, ULong, Byte, Short, Int))(chance.randint(0, 9)),
            lambda: ULong((1 << 64) - 1),
            lambda: chance.choice(DOUBLES),
            lambda: chance.choice((float("nan"), float("inf"), float("-inf"))),
            lambda: Float(0.5),
            lambda: chance.choice((b"", b"a", b"\x00\xff")),
            lambda: AN_ID,
            lambda: Timestamp(int((MOMENT + timedelta(hours=chance.randint(-1, 1))).timestamp() * 1000)),
            lambda: Described(Symbol("com.microsoft:timespan"), Long(chance.randint(-1, 1) * 36_000_000_000)),
        )
        return chance.choice(kinds)()

    # -- rules

    def rule(self, number: int, *, acts: bool = False) -> Rule:
        """One that the broker takes."""
        while True:
            action = SqlAction(self.action(), PARAMETERS) if acts else None
            rule = Rule(f"rule-{number}", TrueFilter() if acts else self.filter(), action)
            try:
                check_rule(rule)
            except RuleSyntaxError:
                continue
            return rule

    def filter(self) -> Filter:
        kind = self._chance.random()
        if kind < 0.02:
            return self._chance.choice((TrueFilter(), FalseFilter()))
        if kind < 0.15:
            return self._correlation()
        return SqlFilter(printed(self.condition(self._chance.randint(0, 3))), PARAMETERS)

    def _correlation(self) -> CorrelationFilter:
        chance = self._chance
        values = (
            TypedValue("string", chance.choice(TEXTS)),
            TypedValue("int", chance.choice((0, 1, 7))),
            TypedValue("boolean", True),
            TypedValue("double", chance.choice((1.0, 2.5))),
            TypedValue("dateTime", MOMENT_TICKS),
        )
        named = chance.sample(NAMES, chance.randint(0, 2))
        return CorrelationFilter(
            label=chance.choice(TEXTS) if self._one_in(3) or not named else None,
            properties=tuple((name, chance.choice(values)) for name in named),
        )

    def action(self) -> str:
        return "; ".join(self._statement() for _ in range(self._chance.randint(1, 4)))

    def _statement(self) -> str:
        target = f"[{self._chance.choice((*NAMES, 'fresh'))}]"
        if self._one_in(3):
            target = f"sys.{self._chance.choice((*SYSTEM_TEXTS, 'TimeToLive', 'ForcePersistence'))}"
        if self._one_in(4):
            return f"REMOVE {target}"
        return f"SET {target} = {printed(self.operand(2))}"

    # -- trees

    def condition(self, depth: int) -> Expression:
        chance = self._chance
        if depth > 0:
            parts = tuple(self.condition(depth - 1) for _ in range(chance.randint(2, 3)))
            return chance.choice((And(parts), Or(parts), Not(parts[0])))
        operand = self.operand(1)
        return chance.choice(
            (
                lambda: Comparison(
                    chance.choice(("=", "<>", "<", "<=", ">", ">=")), operand, self.operand(1)
                ),
                lambda: Comparison(chance.choice(("=", "<", ">")), self._property(), self._literal()),
                lambda: Membership(
                    operand, tuple(self.operand(0) for _ in range(chance.randint(1, 3))), self._one_in(2)
                ),
                lambda: Likeness(operand, self._pattern(), None, self._one_in(2)),
                lambda: Likeness(self._property(), self._pattern(), Literal("\\"), self._one_in(2)),
                lambda: NullTest(self._property(), self._one_in(2)),
                lambda: Existence(self._property()),
                lambda: self._property(),
            )
        )()

    def _choices(self) -> tuple[Operand, ...]:
        return tuple(self.operand(0) for _ in range(self._chance.randint(1, 3)))

    def operand(self, depth: int) -> Operand:
        chance = self._chance
        if depth > 0 and self._one_in(4):
            operators = chance.choice(("+-", "*/%"))
            steps = tuple(
                (chance.choice(operators), self.operand(depth - 1)) for _ in range(chance.randint(1, 2))
            )
            return chance.choice((Arithmetic(self.operand(depth - 1), steps), Sign("-", self._property())))
        if self._one_in(60):
            return NewId()
        return chance.choice((self._property, self._property, self._literal, self._parameter))()

    def _property(self) -> Property | PropertyOf:
        chance = self._chance
        if self._one_in(3):
            return Property(chance.choice(SYSTEM_NAMES), is_system=True)
        if self._one_in(8):
            return PropertyOf(chance.choice((Literal("a"), Literal("Size"), Property("b"))))
        return Property(chance.choice(NAMES))

    def _literal(self) -> Literal:
        chance = self._chance
        value = chance.choice((TEXTS, INTEGERS, DOUBLES, (None, True, False)))
        return Literal(chance.choice(value))

    def _parameter(self) -> Parameter:
        return Parameter(self._chance.choice(PARAMETERS)[0][1:])

    def _pattern(self) -> Operand:
        if self._one_in(12):
            return Property("b")
        pieces = ("a", "b", "%", "_", "\\%", "\\_", "é", ".", "%%")
        return Literal("".join(self._chance.choices(pieces, k=self._chance.randint(0, 5))))

    def _one_in(self, count: int) -> bool:
        return self._chance.randrange(count) == 0


def shown_row(row: dict[str, object]) -> str:
    return json.dumps(
        {name: str(value) for name, value in row.items() if value is not None}, ensure_ascii=False
    )
