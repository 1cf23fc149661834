"""LIKE (T-27): `%` any run of characters, `_` one character, the whole text must match, case matters.

Theory of operation. The pattern is cut at its `%` into segments, once. The first segment must stand at the start of
the text, the last at its end, the others are looked for from left to right, each behind the one before; taking the
first place each time is enough. A segment without `_` is found by `str.find`. One with `_` is found bit by bit: an
integer holds, for every length, whether that much of the segment matches up to the present character, and one shift
and one mask bring all of them to the next. So no character of the text is looked at twice, whatever the pattern:
the cost is the length of the text, and a pattern of thousand `%_` is no bomb. What a character of the text costs is
known beforehand (`LikePattern.quarters`), for the budget of the rule.
"""

from typing import Final

from busway.rules.budget import QUARTERS
from busway.rules.errors import FilterError

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
        #: What `matches` costs for each character of the text, at most (`budget`).
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
