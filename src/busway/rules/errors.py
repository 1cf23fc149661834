"""What can be wrong with a rule: its text (before anything is stored), or its effect on one message.

All three carry a whole sentence. Text of strangers is shown cut and without control characters, because these
sentences reach terminals, logs and dead-letter descriptions.
"""

from typing import Final

_SHOWN_CHARACTERS_MAX: Final = 40
_POINTER_CHARACTERS: Final = 36


class RuleSyntaxError(ValueError):
    """The text of a filter or an action, or a parameter, is wrong (T-36, ERR-28).

    `position` counts characters from 0, `line` and `column` from 1. `pointer` is two lines: the place in the
    text, and a caret below it; it is empty where the fault is not in the text but in a parameter or condition.
    """

    def __init__(self, fault: str, text: str = "", position: int = -1) -> None:
        self.position = position
        self.line, self.column, self.pointer = 0, 0, ""
        if position < 0:
            self.sentence = fault[:1].upper() + fault[1:]
        else:
            self.sentence = f"At character {position + 1}: {fault}"
            self._point(text)
        super().__init__(self.sentence)

    def _point(self, text: str) -> None:
        line_start = text.rfind("\n", 0, self.position) + 1
        self.line = text.count("\n", 0, self.position) + 1
        self.column = self.position - line_start + 1
        first = max(line_start, self.position - _POINTER_CHARACTERS)
        line_end = text.find("\n", self.position)
        last = min(len(text) if line_end < 0 else line_end, self.position + _POINTER_CHARACTERS)
        shown = printable(text[first : max(first, last)])
        self.pointer = f"{shown}\n{' ' * (self.position - first)}^"


class FilterError(Exception):
    """A filter could not be evaluated for a message. Its dead-letter reason is FilterException (D-15)."""


class ActionError(Exception):
    """An action could not be applied to a message. Its dead-letter reason is RuleActionException (D-15)."""


def printable(text: str) -> str:
    """One line of as many characters, none of which moves a cursor."""
    return "".join(character if character.isprintable() else "�" for character in text)


def shown(text: str) -> str:
    """A piece of a stranger's text inside a sentence of ours."""
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "…"
    return f"'{printable(text)}'"
