"""Text of a rule cut into tokens, each with its place (T-20…T-23, T-25).

Letters and digits are Unicode classes (T-22); keywords are ASCII whatever their case (T-21), so that letters which
merely fold to ASCII ones (the Kelvin sign, the dotless i) never make one.
"""

from dataclasses import dataclass
from typing import Final

from busway.rules.errors import RuleSyntaxError, shown

#: E-71, for a filter and for an action alike.
TEXT_CHARACTERS_MAX: Final = 1024

NAME: Final = "name"
#: A name in brackets or double quotes: never a keyword, never a function or a scope.
DELIMITED_NAME: Final = "delimited name"
PARAMETER: Final = "parameter"
STRING: Final = "string"
INTEGER: Final = "integer"
DOUBLE: Final = "double"
KEYWORD: Final = "keyword"
SYMBOL: Final = "symbol"
END: Final = "end"

KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE")
)
_TWO_CHARACTER_SYMBOLS: Final = frozenset(("<>", "!=", "<=", ">="))
_SYMBOLS: Final = frozenset("=<>+-*/%(),.;")


@dataclass(frozen=True)
class Token:
    """`text` is what the token means: a keyword in capitals, a name or string without its quotes."""

    kind: str
    text: str
    position: int
    #: As it was written.
    source: str

    def described(self) -> str:
        return "the end of the text" if self.kind == END else shown(self.source)


def tokens_of(text: str) -> list[Token]:
    """The tokens of `text`; the last one is always END."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise RuleSyntaxError(
            f"The text has {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are allowed."
        )
    return _Scanner(text).tokens()


def is_plain_name(text: str) -> bool:
    """Whether `text` can be written as a name without brackets."""
    return text[:1].isalpha() and all(map(_continues_name, text)) and not _is_keyword(text)


def _is_keyword(text: str) -> bool:
    return text.isascii() and text.upper() in KEYWORDS


def _continues_name(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


class _Scanner:
    """`_at` is the next character; each method moves it past the token that it makes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def tokens(self) -> list[Token]:
        found = []
        while True:
            token = self._next()
            found.append(token)
            if token.kind == END:
                return found

    def _next(self) -> Token:
        text = self._text
        while self._at < len(text) and text[self._at].isspace():
            self._at += 1
        if self._at == len(text):
            return Token(END, "", self._at, "")
        first = text[self._at]
        if first.isalpha():
            return self._word()
        if _is_digit(first):
            return self._number()
        if first == "'":
            return self._delimited("'", STRING)
        if first == "[":
            return self._delimited("]", DELIMITED_NAME)
        if first == '"':
            return self._delimited('"', DELIMITED_NAME)
        if first == "@":
            return self._parameter()
        return self._symbol()

    def _token(self, kind: str, start: int, meaning: str) -> Token:
        return Token(kind, meaning, start, self._text[start : self._at])

    def _skip_name(self) -> None:
        while self._at < len(self._text) and _continues_name(self._text[self._at]):
            self._at += 1

    def _word(self) -> Token:
        start = self._at
        self._skip_name()
        word = self._text[start : self._at]
        if _is_keyword(word):
            return self._token(KEYWORD, start, word.upper())
        return self._token(NAME, start, word)

    def _parameter(self) -> Token:
        start = self._at
        self._at += 1
        self._skip_name()
        name = self._text[start + 1 : self._at]
        if not name:
            raise RuleSyntaxError("expected the name of a parameter after '@'.", self._text, start)
        return self._token(PARAMETER, start, name)

    def _delimited(self, closing: str, kind: str) -> Token:
        """Until `closing`, which stands for itself when doubled."""
        start = self._at
        at = start + 1
        while True:
            at = self._text.find(closing, at)
            if at < 0:
                what = "string" if kind == STRING else "name"
                fault = f"the {what} that begins here has no closing {closing}."
                raise RuleSyntaxError(fault, self._text, start)
            if self._text[at + 1 : at + 2] != closing:
                break
            at += 2
        self._at = at + 1
        meaning = self._text[start + 1 : at].replace(closing * 2, closing)
        if kind == DELIMITED_NAME and not meaning:
            raise RuleSyntaxError("a name cannot be empty.", self._text, start)
        return self._token(kind, start, meaning)

    def _number(self) -> Token:
        start = self._at
        kind = INTEGER
        self._skip_digits()
        if self._follows("."):
            kind = DOUBLE
            self._at += 1
            self._need_digits("expected digits after the decimal point")
        if self._follows("eE"):
            kind = DOUBLE
            self._at += 1
            if self._follows("+-"):
                self._at += 1
            self._need_digits("expected digits in the exponent")
        if self._at < len(self._text) and _continues_name(self._text[self._at]):
            fault = f"{shown(self._text[self._at])} cannot follow a number."
            raise RuleSyntaxError(fault, self._text, self._at)
        return self._token(kind, start, self._text[start : self._at])

    def _follows(self, characters: str) -> bool:
        following = self._text[self._at : self._at + 1]
        return following != "" and following in characters

    def _skip_digits(self) -> None:
        while self._at < len(self._text) and _is_digit(self._text[self._at]):
            self._at += 1

    def _need_digits(self, expected: str) -> None:
        start = self._at
        self._skip_digits()
        if self._at == start:
            raise RuleSyntaxError(f"{expected}.", self._text, start)

    def _symbol(self) -> Token:
        start = self._at
        two = self._text[start : start + 2]
        if two in _TWO_CHARACTER_SYMBOLS:
            self._at += 2
            return self._token(SYMBOL, start, two)
        if two[0] not in _SYMBOLS:
            fault = f"the character {shown(two[0])} has no meaning here."
            if two[0] == "_":
                fault = "a name begins with a letter; write others in brackets, such as [_name]."
            raise RuleSyntaxError(fault, self._text, start)
        self._at += 1
        return self._token(SYMBOL, start, two[0])
