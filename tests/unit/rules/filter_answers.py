"""What filters answer for one message: true, false, unknown or an error."""

from typing import Final

from busway.rules.compiled_rule import compiled_filter
from busway.rules.evaluate import Compilation
from busway.rules.parse import parse_filter
from busway.rules.rule import FilterError, SqlFilter, TypedValue
from busway.rules.subject import Instant, Span
from tests.unit.rules.property_bag import AN_ID, PropertyBag, an_id

T: Final = True


F: Final = False


U: Final = None


E: Final = "error"


Answer = bool | str | None


HOUR: Final = 36_000_000_000


NOON: Final = Instant(638_000_000_000_000_000)


MESSAGE: Final = PropertyBag(
    {
        "color": "red",
        "Quantity": 10,
        "price": 2.5,
        "urgent": True,
        "paid": False,
        "nothing": None,
        "empty": "",
        "number as text": "10",
        "a]b": "bracket",
        'say "hi"': "quote",
        "größe": 3,
        "long": (1 << 63) - 1,
        "low": -(1 << 63),
        "ulong": (1 << 64) - 1,
        "zero": 0,
        "minus": -7,
        "inf": float("inf"),
        "nan": float("nan"),
        "id": AN_ID,
        "raw": b"\x01",
        "begun": NOON,
        "ended": Instant(NOON.ticks + HOUR),
        "took": Span(HOUR),
        "aeon": Span(1 << 62),
        "percent": "100%",
        "path": "a/b_c",
        "pattern": "r_d",
        "backslash": "\\",
        "wide": "x" * 40_000,
        "order": "keyword-free",
        "and": "a keyword",
        "user": "a scope",
        "p": "a function",
        "name of it": "COLOR",
    },
    {
        "Label": "bus stop",
        "MessageId": "m-1",
        "To": "Store5",
        "SequenceNumber": 42,
        "EnqueuedTimeUtc": NOON,
        "TimeToLive": Span(HOUR),
        "ForcePersistence": False,
        "LockToken": AN_ID,
    },
)


PARAMETERS: Final = (
    ("@text", TypedValue("string", "red")),
    ("@int", TypedValue("int", 10)),
    ("@long", TypedValue("long", 1 << 40)),
    ("@yes", TypedValue("boolean", True)),
    ("@double", TypedValue("double", 2.5)),
    ("@when", TypedValue("dateTime", NOON.ticks)),
    ("@span", TypedValue("duration", HOUR)),
    ("without_at", TypedValue("string", "red")),
)


def answer(text: str) -> Answer:
    expression = parse_filter(text)
    truth = Compilation(text, PARAMETERS, an_id).truth(expression)
    try:
        return truth.evaluate(MESSAGE)
    except FilterError:
        return E


def selects(text: str) -> bool:
    return compiled_filter(SqlFilter(text, PARAMETERS), an_id).matches(MESSAGE)
