"""Text of a filter or an action → tokens, each with its place → its tree (T-20…T-28, T-50).

Tokens (T-20…T-23, T-25). Letters and digits are Unicode classes (T-22); keywords are ASCII whatever their case
(T-21), so that letters which merely fold to ASCII ones (the Kelvin sign, the dotless i) never make one.

Theory of operation. One function climbs precedences: it reads a prefix (an atom, a sign, NOT, parentheses), then
takes infix operators for as long as they bind tightly enough. Chains of one operator are gathered in a loop, so
the call stack grows only with parentheses, NOTs, signs and function calls, and that depth is bounded.

Conditions and operands share this function, because only after a closing parenthesis does it show which of the two
was inside; whoever needs one of them asks `_operand` or `_condition`, which point at the place if it is the other.
"""

import math
from dataclasses import dataclass
from typing import Final

from busway.rules.expression import (
    CANONICAL,
    SETTABLE,
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
    RemoveStatement,
    SetStatement,
    Sign,
    Statement,
    similar_names,
)
from busway.rules.rule import RuleSyntaxError, shown

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


#: E-71
STATEMENTS_MAX: Final = 32
#: Parentheses, NOTs, signs and function calls around one another. Ours: the service names no number.
DEPTH_MAX: Final = 64
INTEGER_MAX: Final = (1 << 63) - 1

# How tightly operators bind.
_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_TEST: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_ATOM: Final = 7

_COMPARISONS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_BINDING: Final = {
    (KEYWORD, "OR"): _OR,
    (KEYWORD, "AND"): _AND,
    (KEYWORD, "NOT"): _TEST,  # x NOT IN, x NOT LIKE
    (KEYWORD, "IN"): _TEST,
    (KEYWORD, "LIKE"): _TEST,
    (KEYWORD, "IS"): _TEST,
    **{(SYMBOL, operator): _TEST for operator in _COMPARISONS},
    (SYMBOL, "+"): _SUM,
    (SYMBOL, "-"): _SUM,
    (SYMBOL, "*"): _PRODUCT,
    (SYMBOL, "/"): _PRODUCT,
    (SYMBOL, "%"): _PRODUCT,
}
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_OPERANDS: Final = (Literal, Property, Parameter, NewId, PropertyOf, Sign, Arithmetic)


def parse_filter(text: str) -> Expression:
    """Raises `RuleSyntaxError`, nothing else."""
    parser = _Parser(text)
    expression = parser.condition(_OR)
    parser.end()
    return expression


def parse_action(text: str) -> tuple[Statement, ...]:
    """Raises `RuleSyntaxError`, nothing else. Semicolons between statements may be left out, as in the service."""
    parser = _Parser(text)
    statements = [parser.statement()]
    while not parser.at_end():
        if len(statements) == STATEMENTS_MAX:
            raise parser.fault(f"an action has at most {STATEMENTS_MAX} statements.")
        statements.append(parser.statement())
    return tuple(statements)


class _Parser:
    """`_token` is the next token, not yet taken."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._index = 0
        self._token = self._tokens[0]
        self._depth = 0

    # -- tokens

    def _take(self) -> Token:
        taken = self._token
        if taken.kind != END:
            self._index += 1
            self._token = self._tokens[self._index]
        return taken

    def _following(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def _is(self, kind: str, text: str) -> bool:
        return self._token.kind == kind and self._token.text == text

    def _accept(self, kind: str, text: str) -> bool:
        if not self._is(kind, text):
            return False
        self._take()
        return True

    def _expect(self, kind: str, text: str) -> None:
        if not self._accept(kind, text):
            raise self._unexpected(f"'{text}'" if kind == SYMBOL else text)

    def fault(self, sentence: str, at: Token | None = None) -> RuleSyntaxError:
        return RuleSyntaxError(sentence, self._text, (self._token if at is None else at).position)

    def _unexpected(self, expected: str) -> RuleSyntaxError:
        return self.fault(f"expected {expected} but found {self._token.described()}.")

    def at_end(self) -> bool:
        return self._token.kind == END

    def end(self) -> None:
        if not self.at_end():
            raise self._unexpected("AND, OR or the end of the text")

    # -- statements

    def statement(self) -> Statement:
        if self._accept(KEYWORD, "SET"):
            target = self._target()
            self._expect(SYMBOL, "=")
            statement: Statement = SetStatement(target, self._operand(_SUM))
        elif self._accept(KEYWORD, "REMOVE"):
            statement = RemoveStatement(self._target())
        else:
            raise self._unexpected("SET or REMOVE")
        if not self._accept(SYMBOL, ";") and not self._begins_statement():
            raise self._unexpected("';' or the end of the text")
        return statement

    def _begins_statement(self) -> bool:
        return self.at_end() or self._is(KEYWORD, "SET") or self._is(KEYWORD, "REMOVE")

    def _target(self) -> Property:
        place = self._token
        target = self._property()
        if target.is_system and target.name not in SETTABLE:
            raise self.fault(f"sys.{target.name} is given by the broker; an action cannot change it.", place)
        return target

    # -- conditions and operands

    def condition(self, binding: int) -> Expression:
        place = self._token
        expression = self._expression(binding)
        if not _may_be_boolean(expression):
            if self.at_end() or self._is(SYMBOL, ")"):
                raise self._unexpected("a comparison")
            raise self.fault("this value is not boolean: expected a condition.", place)
        return expression

    def _operand(self, binding: int) -> Operand:
        place = self._token
        expression = self._expression(binding)
        if isinstance(expression, _OPERANDS):
            return expression
        raise self.fault("expected a value, but this is a condition.", place)

    def _expression(self, binding: int) -> Expression:
        """Everything from here that binds at least as tightly as `binding`."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self.fault(f"nested more than {DEPTH_MAX} deep.")
        place = self._token
        expression = self._prefix(binding)
        while True:
            token = self._token
            infix = _BINDING.get((token.kind, token.text), 0)
            if infix < binding or infix == 0:
                self._depth -= 1
                return expression
            expression = self._infix(expression, infix, place)

    def _prefix(self, binding: int) -> Expression:
        token = self._token
        if token.kind == KEYWORD and token.text == "NOT" and binding <= _NOT:
            self._take()
            return Not(self.condition(_NOT))
        if token.kind == KEYWORD and token.text == "EXISTS" and binding <= _TEST:
            self._take()
            self._expect(SYMBOL, "(")
            existence = Existence(self._any_property())
            self._expect(SYMBOL, ")")
            return existence
        if token.kind == SYMBOL and token.text in "+-":
            return self._signed(self._take().text)
        if self._accept(SYMBOL, "("):
            expression = self._expression(_OR)
            self._expect(SYMBOL, ")")
            return expression
        return self._atom(token)

    def _signed(self, operator: str) -> Operand:
        if self._token.kind in (INTEGER, DOUBLE) and operator == "-":
            return self._number(self._take(), is_negative=True)
        return Sign(operator, self._operand(_ATOM))

    def _infix(self, left: Expression, binding: int, place: Token) -> Expression:
        """`place` is where `left` begins."""
        if binding == _OR:
            return Or(self._chain(left, "OR", _AND, place))
        if binding == _AND:
            return And(self._chain(left, "AND", _NOT, place))
        if not isinstance(left, _OPERANDS):
            raise self.fault(f"{self._token.described()} needs a value on its left, but found a condition.")
        if binding == _TEST:
            return self._test(left)
        steps = []
        while _BINDING.get((self._token.kind, self._token.text)) == binding:
            operator = self._take().text
            steps.append((operator, self._operand(binding + 1)))
        return Arithmetic(left, tuple(steps))

    def _chain(self, first: Expression, word: str, binding: int, place: Token) -> tuple[Expression, ...]:
        if not _may_be_boolean(first):
            raise self.fault(f"{word} needs a condition on its left, but this value is not boolean.", place)
        parts = [first]
        while self._accept(KEYWORD, word):
            parts.append(self.condition(binding))
        return tuple(parts)

    def _test(self, left: Operand) -> Expression:
        token = self._take()
        if token.kind == SYMBOL:
            return Comparison(_COMPARISONS[token.text], left, self._operand(_SUM))
        if token.text == "IS":
            return self._null_test(left, token)
        is_negated = token.text == "NOT"
        if is_negated:
            if not (self._is(KEYWORD, "IN") or self._is(KEYWORD, "LIKE")):
                raise self._unexpected("IN or LIKE")
            token = self._take()
        return (self._membership if token.text == "IN" else self._likeness)(left, is_negated)

    def _null_test(self, left: Operand, place: Token) -> Expression:
        if not isinstance(left, Property | PropertyOf):
            raise self.fault("IS NULL needs a property on its left.", place)
        is_negated = self._accept(KEYWORD, "NOT")
        self._expect(KEYWORD, "NULL")
        return NullTest(left, is_negated)

    def _membership(self, left: Operand, is_negated: bool) -> Expression:
        self._expect(SYMBOL, "(")
        choices = [self._operand(_SUM)]
        while self._accept(SYMBOL, ","):
            choices.append(self._operand(_SUM))
        if not self._accept(SYMBOL, ")"):
            raise self._unexpected("',' or ')'")
        return Membership(left, tuple(choices), is_negated)

    def _likeness(self, left: Operand, is_negated: bool) -> Expression:
        pattern_position = self._token.position
        pattern = self._operand(_SUM)
        if not self._accept(KEYWORD, "ESCAPE"):
            return Likeness(left, pattern, None, is_negated, pattern_position)
        escape_position = self._token.position
        return Likeness(left, pattern, self._operand(_SUM), is_negated, pattern_position, escape_position)

    # -- atoms

    def _atom(self, token: Token) -> Operand:
        if token.kind == STRING:
            return Literal(self._take().text)
        if token.kind in (INTEGER, DOUBLE):
            return self._number(self._take(), is_negative=False)
        if token.kind == PARAMETER:
            self._take()
            return Parameter(token.text, token.position)
        if token.kind == KEYWORD and token.text in _CONSTANTS:
            return Literal(_CONSTANTS[self._take().text])
        if token.kind in (NAME, DELIMITED_NAME):
            return self._function() if self._calls() else self._property()
        raise self._unexpected("a value")

    def _number(self, token: Token, *, is_negative: bool) -> Literal:
        if token.kind == DOUBLE:
            double = float(token.text)
            if math.isinf(double):
                raise self.fault(f"{token.described()} is too large for a double.", token)
            return Literal(-double if is_negative else double)
        integer = int(token.text)
        if integer > INTEGER_MAX + is_negative:
            raise self.fault(f"{token.described()} does not fit in 64 bits.", token)
        return Literal(-integer if is_negative else integer)

    def _calls(self) -> bool:
        following = self._following()
        return self._token.kind == NAME and following.kind == SYMBOL and following.text == "("

    def _function(self) -> Operand:
        token = self._take()
        name = token.text.casefold()
        if name not in ("newid", "property", "p"):
            raise self.fault(
                f"there is no function {token.described()}; there are newid and property.", token
            )
        self._expect(SYMBOL, "(")
        if name == "newid":
            self._expect(SYMBOL, ")")
            return NewId()
        place = self._token
        operand = self._operand(_SUM)
        if isinstance(operand, NewId) or (isinstance(operand, Literal) and not _is_text(operand)):
            raise self.fault("the name of a property must be a string.", place)
        self._expect(SYMBOL, ")")
        return PropertyOf(operand)

    def _any_property(self) -> Property | PropertyOf:
        if not self._calls():
            return self._property()
        place = self._token
        called = self._function()
        if isinstance(called, PropertyOf):
            return called
        raise self.fault("expected a property.", place)

    def _property(self) -> Property:
        token = self._named()
        scope = token.text.casefold()
        if token.kind != NAME or scope not in ("sys", "user") or not self._accept(SYMBOL, "."):
            return Property(token.text)
        place = self._token
        name = self._named().text
        if scope == "user":
            return Property(name)
        canonical = CANONICAL.get(name.casefold())
        if canonical is None:
            hint = similar_names(name.casefold())
            raise self.fault(f"there is no system property {shown(name)}.{hint}", place)
        return Property(canonical, is_system=True)

    def _named(self) -> Token:
        if self._token.kind in (NAME, DELIMITED_NAME):
            return self._take()
        if self._token.kind == KEYWORD:
            written = self._token.source
            fault = f"expected the name of a property, but {written} is a keyword; write [{written}]."
            raise self.fault(fault)
        raise self._unexpected("the name of a property")


def _is_text(literal: Literal) -> bool:
    return isinstance(literal.value, str)


def _may_be_boolean(expression: Expression) -> bool:
    """T-20: a bare operand is a condition if it can be TRUE or FALSE."""
    if isinstance(expression, Literal):
        return expression.value is None or isinstance(expression.value, bool)
    return not isinstance(expression, NewId | Sign | Arithmetic)
