"""The operators of rules on values: comparison, arithmetic, LIKE; and what evaluating a rule may cost.

Comparison (T-29, T-30, T-35) is true, false, or None for unknown. Numbers compare as in C#: an integer beside a
double becomes a double. Values of different kinds, booleans, GUIDs and bytes by order, and null with anything do
not compare: unknown, never an error.

Arithmetic, `+ - * / %` and signs (T-29): None stands for unknown and for values that do not go together (T-30). As
in C#: integers divide toward zero and a remainder has the sign of the dividend; a double beside an integer makes a
double; division of doubles by zero is infinite or not a number. Unlike C#, an integer never wraps around: a result
beyond 64 bits is a filter error, like an integer division by zero.

LIKE (T-27): `%` any run of characters, `_` one character, the whole text must match, case matters. Theory of
operation. The pattern is cut at its `%` into segments, once. The first segment must stand at the start of the
text, the last at its end, the others are looked for from left to right, each behind the one before; taking the
first place each time is enough. A segment without `_` is found by `str.find`. One with `_` is found bit by bit: an
integer holds, for every length, whether that much of the segment matches up to the present character, and one
shift and one mask bring all of them to the next. So no character of the text is looked at twice, whatever the
pattern: the cost is the length of the text, and a pattern of thousand `%_` is no bomb. What a character of the
text costs is known beforehand (`LikePattern.quarters`), for the budget of the rule.

The budget is what evaluating one rule for one message may cost, in characters walked. A rule's text is short, but
what it is held against is not: sixty patterns over a property of 32 KB are two million steps, for each
subscription and message. So whatever walks over texts of a message says before it does how many characters that
will be; beyond the budget the rule has failed for this message (T-60). What is charged follows from rule and
message alone, never from the time it took or from what else is published: the answer is the same each time. Only
LIKE and names that a message gives are charged. Texts are compared and put together at the speed of memory.
"""

import math
from typing import Final
from uuid import UUID

from busway.rules.rule import FilterError
from busway.rules.subject import INSTANT_TICKS_MAX, INTEGER_MAX, INTEGER_MIN, Instant, Span, Value

#: Of one evaluation. A LIKE with a gap (`_`) over a property of 32 KB is 32,000 of them.
CHARACTERS_MAX: Final = 1_000_000
#: What is cheaper than a step from character to character is charged in quarters of one.
QUARTERS: Final = 4
_QUARTERS_MAX: Final = CHARACTERS_MAX * QUARTERS


class Budget:
    """Of one compiled rule, whose nodes share it; whoever evaluates the rule renews it first."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _QUARTERS_MAX

    def renew(self) -> None:
        self._left = _QUARTERS_MAX

    def walked(self) -> int:
        """Characters, since it was renewed; also those that were too many."""
        return (_QUARTERS_MAX - self._left) // QUARTERS

    def spend(self, quarters: int) -> None:
        """Raises FilterError when that is more than what is left."""
        self._left -= quarters
        if self._left < 0:
            raise FilterError(f"Evaluating it means walking over more than {CHARACTERS_MAX} characters.")


def equal(left: Value, right: Value) -> bool | None:
    if isinstance(left, str):
        return left == right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right if isinstance(left, bool) and isinstance(right, bool) else None
    if isinstance(left, int):
        if isinstance(right, int):
            return left == right
        return float(left) == right if isinstance(right, float) else None
    if isinstance(left, float):
        return left == float(right) if isinstance(right, (int, float)) else None
    return _equal_objects(left, right)


def _equal_objects(left: Value, right: Value) -> bool | None:
    if isinstance(left, Instant):
        return left.ticks == right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks == right.ticks if isinstance(right, Span) else None
    if isinstance(left, UUID):
        return left == right if isinstance(right, UUID) else None
    if isinstance(left, bytes):
        return left == right if isinstance(right, bytes) else None
    return None


def less(left: Value, right: Value) -> bool | None:
    if isinstance(left, str):
        return left < right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return (
            left < right if isinstance(left, int) and isinstance(right, int) else float(left) < float(right)
        )
    if isinstance(left, Instant):
        return left.ticks < right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks < right.ticks if isinstance(right, Span) else None
    return None


def less_or_equal(left: Value, right: Value) -> bool | None:
    """Not `not greater`: beside a NaN both are false."""
    if isinstance(left, str):
        return left <= right if isinstance(right, str) else None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return (
            left <= right if isinstance(left, int) and isinstance(right, int) else float(left) <= float(right)
        )
    if isinstance(left, Instant):
        return left.ticks <= right.ticks if isinstance(right, Instant) else None
    if isinstance(left, Span):
        return left.ticks <= right.ticks if isinstance(right, Span) else None
    return None


#: Of a text put together with `+`.
TEXT_CHARACTERS_MAX: Final = 65_536


def calculated(operator: str, left: Value, right: Value) -> Value:
    """Raises FilterError, nothing else."""
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            return _integer(operator, left, right)
        return _double(operator, float(left), float(right))
    if isinstance(left, str) and isinstance(right, str):
        return _joined(left, right) if operator == "+" else None
    if isinstance(left, (Instant, Span)) and isinstance(right, (Instant, Span)):
        return _time(operator, left, right)
    return None


def negated(value: Value) -> Value:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _fitting(-value)
    if isinstance(value, float):
        return -value
    return Span(_fitting(-value.ticks)) if isinstance(value, Span) else None


def unchanged(value: Value) -> Value:
    """A plus sign: nothing for what it can stand before, unknown for others."""
    if isinstance(value, (int, float, Span)) and not isinstance(value, bool):
        return value
    return None


def _fitting(value: int) -> int:
    if value < INTEGER_MIN or value > INTEGER_MAX:
        raise FilterError("The result of an arithmetic operation does not fit in 64 bits.")
    return value


def _integer(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return _fitting(left + right)
    if operator == "-":
        return _fitting(left - right)
    if operator == "*":
        return _fitting(left * right)
    if right == 0:
        raise FilterError("An integer was divided by zero.")
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return _fitting(quotient if operator == "/" else left - quotient * right)


def _double(operator: str, left: float, right: float) -> float:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left / right if right != 0 else _by_zero(left, right)
    if right == 0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _by_zero(left: float, right: float) -> float:
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > TEXT_CHARACTERS_MAX:
        raise FilterError(f"A text put together has more than {TEXT_CHARACTERS_MAX} characters.")
    return left + right


def _time(operator: str, left: Instant | Span, right: Instant | Span) -> Value:
    if operator not in ("+", "-"):
        return None
    ticks = left.ticks + right.ticks if operator == "+" else left.ticks - right.ticks
    if isinstance(left, Instant) and isinstance(right, Instant):
        return Span(ticks) if operator == "-" else None
    if isinstance(left, Span) and isinstance(right, Span):
        return Span(_fitting(ticks))
    if isinstance(left, Span) and operator == "-":
        return None
    if not 0 <= ticks <= INSTANT_TICKS_MAX:
        raise FilterError("The result is a date before the year 1 or after the year 9999.")
    return Instant(ticks)


#: A pattern taken from a message may be longer than any text of a rule; the masks grow with it.
PATTERN_CHARACTERS_MAX: Final = 1024
#: Preparing a pattern costs as much as that many steps for each of its characters.
PATTERN_QUARTERS: Final = 16 * QUARTERS
#: A step costs one more for each so many bits of the masks.
_STEP_BITS: Final = 64

_ANY: Final = ""


class Segment:
    """What stands between two `%`: characters, some of them `_`."""

    __slots__ = ("_any_mask", "_masks", "_pieces", "length", "quarters", "text")

    def __init__(self, characters: list[str]) -> None:
        self.length = len(characters)
        #: The whole segment when it has no `_`, else None.
        self.text: str | None = None if _ANY in characters else "".join(characters)
        #: Where its literal parts begin, and what they are.
        self._pieces = _pieces_of(characters)
        #: By character the places of the segment where it may stand; `_any_mask` for those that it does not name.
        self._any_mask = 0
        self._masks: dict[str, int] = {}
        #: What looking for it costs for each character of the text: finding a text is far cheaper than stepping.
        self.quarters = 1 if self._pieces else 0
        if self.text is None:
            self._fill_masks(characters)
            if self._pieces:
                self.quarters = QUARTERS * (1 + self.length // _STEP_BITS)

    def _fill_masks(self, characters: list[str]) -> None:
        for place, character in enumerate(characters):
            if character == _ANY:
                self._any_mask |= 1 << place
        for place, character in enumerate(characters):
            if character != _ANY:
                self._masks[character] = self._masks.get(character, self._any_mask) | 1 << place

    def stands_at(self, text: str, start: int) -> bool:
        """The caller knows that there are enough characters."""
        stands = True
        for offset, piece in self._pieces:
            stands = text.startswith(piece, start + offset)
            if not stands:
                break
        return stands

    def end_in(self, text: str, start: int, stop: int) -> int:
        """Behind its first place between `start` and `stop`, -1 without one."""
        if self.text is not None:
            at = text.find(self.text, start, stop)
            return at if at < 0 else at + self.length
        if not self._pieces:
            return start + self.length if start + self.length <= stop else -1
        return self._end_by_bits(text, start, stop)

    def _end_by_bits(self, text: str, start: int, stop: int) -> int:
        masks, any_mask = self._masks, self._any_mask
        whole = 1 << (self.length - 1)
        matched = 0
        for at in range(start, stop):
            matched = (matched << 1 | 1) & masks.get(text[at], any_mask)
            if matched & whole:
                return at + 1
        return -1


class LikePattern:
    """A pattern, ready for many texts. Raises FilterError if it ends with its escape character or is too long."""

    __slots__ = ("_first", "_last", "_length_min", "_middle", "quarters")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        segments = _segments_of(pattern, escape)
        self._first = segments[0]
        #: None for a pattern without any `%`.
        self._last = segments[-1] if len(segments) > 1 else None
        self._middle = [segment for segment in segments[1:-1] if segment.length > 0]
        self._length_min = sum(segment.length for segment in segments)
        #: What `matches` costs for each character of the text, at most (`Budget`).
        self.quarters = 0
        for segment in self._middle:
            self.quarters = max(self.quarters, segment.quarters)

    def matches(self, text: str) -> bool:
        last = self._last
        if last is None:
            return len(text) == self._length_min and self._first.stands_at(text, 0)
        if len(text) < self._length_min or not self._first.stands_at(text, 0):
            return False
        stop = len(text) - last.length
        if not last.stands_at(text, stop):
            return False
        at = self._first.length
        for segment in self._middle:
            at = segment.end_in(text, at, stop)
            if at < 0:
                return False
        return True


def _segments_of(pattern: str, escape: str | None) -> list[Segment]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise FilterError(f"A pattern of LIKE has more than {PATTERN_CHARACTERS_MAX} characters.")
    segments: list[Segment] = []
    characters: list[str] = []
    is_escaped = False
    for character in pattern:
        if is_escaped:
            characters.append(character)
            is_escaped = False
        elif character == escape:
            is_escaped = True
        elif character == "%":
            segments.append(Segment(characters))
            characters = []
        else:
            characters.append(_ANY if character == "_" else character)
    if is_escaped:
        raise FilterError("A pattern of LIKE ends with its escape character.")
    segments.append(Segment(characters))
    return segments


def _pieces_of(characters: list[str]) -> list[tuple[int, str]]:
    pieces: list[tuple[int, str]] = []
    start = 0
    for place in range(len(characters) + 1):
        if place == len(characters) or characters[place] == _ANY:
            if place > start:
                pieces.append((start, "".join(characters[start:place])))
            start = place + 1
    return pieces
