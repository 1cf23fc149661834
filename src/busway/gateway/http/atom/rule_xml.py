"""Rules of subscriptions as XML (E-70…E-74): filter, action, typed values. Texts are checked by the broker.

Values of rule parameters and correlation properties lie between XML text and `TypedValue`, exact to 100 ns (E-74).
Their types are known by their local name: a prefix inside an attribute's value is not resolved by the parser, and
clients choose their own (`d6p1:int`, `l28:double`).
"""

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Final
from xml.etree.ElementTree import Element

from busway.atom_names import CONNECT, CORRELATION_ELEMENTS, INSTANCE, SCHEMA, SERIALIZATION
from busway.gateway.http.atom.atom import is_nil, local_name, text_of, timestamp, xml_escaped
from busway.gateway.http.untrusted_input import flag_of, integer_of
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument
from busway.rules.rule import (
    COMPATIBILITY_LEVEL,
    VALUE_TYPES,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)

Pairs = tuple[tuple[str, TypedValue], ...]
RULE_DESCRIPTION: Final = "RuleDescription"
_PAIR: Final = "KeyValueOfstringanyType"
_PROPERTIES: Final = "Properties"
_PARAMETERS: Final = "Parameters"
_TYPE: Final = f"{{{INSTANCE}}}type"
_NO_ACTION: Final = "EmptyRuleAction"
_ACTION: Final = "SqlRuleAction"
_LEVEL_MAX: Final = 100
_FILTER_NAMES: Final[Mapping[type[Filter], str]] = {
    SqlFilter: "SqlFilter",
    TrueFilter: "TrueFilter",
    FalseFilter: "FalseFilter",
    CorrelationFilter: "CorrelationFilter",
}


# -- reading --


def parse_rule(element: Element, addressed: str | None, default: str = "") -> Rule:
    """The rule that a RuleDescription tells. `addressed` is the name in the request's address, which counts; the
    description may leave its own out, or repeat it. Without an address the description's name counts, else
    `default`."""
    parts = _parts(element)
    own = text_of(parts["Name"]).strip() if "Name" in parts else ""
    if addressed is not None and own != "" and path_key(own) != path_key(addressed):
        raise BadArgument(f"Name: {shown(own)} is not the name in the address, {shown(addressed)}.")
    name = addressed if addressed is not None else own or default
    return Rule(name, _filter(parts.get("Filter")), _action(parts.get("Action")))


def _parts(element: Element) -> dict[str, Element]:
    """Children by name; nil ones are not there."""
    parts: dict[str, Element] = {}
    for child in element:
        name = local_name(child)
        if name in parts:
            raise BadArgument(f"{name} comes twice.")
        parts[name] = child
    return {name: child for name, child in parts.items() if not is_nil(child)}


def _filter(element: Element | None) -> Filter:
    """No filter: every message (T-3), read back as TrueFilter (E-64)."""
    if element is None:
        return TrueFilter()
    kind = _kind_of(element)
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        return SqlFilter(*_sql(element, "Filter"))
    if kind == "CorrelationFilter":
        return _correlation(element)
    raise BadArgument(f"Filter: the type {kind[:80]!r} is not one of {', '.join(_FILTER_NAMES.values())}.")


def _action(element: Element | None) -> SqlAction | None:
    if element is None:
        return None
    kind = _kind_of(element)
    if kind == _NO_ACTION:
        return None
    if kind != _ACTION:
        raise BadArgument(f"Action: the type {kind[:80]!r} is not one of {_ACTION}, {_NO_ACTION}.")
    return SqlAction(*_sql(element, "Action"))


def _kind_of(element: Element) -> str:
    return element.get(_TYPE, "").rpartition(":")[2].strip()


def _sql(element: Element, where: str) -> tuple[str, Pairs, int, bool]:
    parts = _parts(element)
    if "SqlExpression" not in parts:
        raise BadArgument(f"{where}: SqlExpression is missing.")
    level = COMPATIBILITY_LEVEL
    if "CompatibilityLevel" in parts:
        level = integer_of("CompatibilityLevel", text_of(parts["CompatibilityLevel"]).strip())
    if not 0 <= level <= _LEVEL_MAX:
        raise BadArgument(f"CompatibilityLevel: {level} is not possible; it is {COMPATIBILITY_LEVEL}.")
    needs = parts.get("RequiresPreprocessing")
    return (
        text_of(parts["SqlExpression"]),
        _pairs(parts.get(_PARAMETERS)),
        level,
        needs is not None and flag_of("RequiresPreprocessing", text_of(needs).strip()),
    )


def _correlation(element: Element) -> CorrelationFilter:
    parts = _parts(element)
    texts = {field: text_of(parts[name]) for name, field in CORRELATION_ELEMENTS if name in parts}
    return CorrelationFilter(**texts, properties=_pairs(parts.get(_PROPERTIES)))


def _pairs(element: Element | None) -> Pairs:
    pairs = tuple(_pair(child) for child in element) if element is not None else ()
    if len({key for key, _ in pairs}) < len(pairs):
        raise BadArgument("A parameter or property comes twice.")
    return pairs


def _pair(element: Element) -> tuple[str, TypedValue]:
    parts = _parts(element)
    if local_name(element) != _PAIR or not parts.keys() >= {"Key", "Value"}:
        raise BadArgument(f"Parameters and properties must be {_PAIR} with a Key and a Value.")
    key, value = text_of(parts["Key"]), parts["Value"]
    if key == "":
        raise BadArgument("The Key of a parameter or property is empty.")
    return key, parse_typed_value(key, _kind_of(value) or "string", text_of(value))


# -- writing --


def rule_element(rule: Rule, *, is_fresh: bool = False) -> str:
    """`is_fresh`: in the answer to its creation the service leaves empty parameters out."""
    action = f'<Action i:type="{_NO_ACTION}"/>'
    if rule.action is not None:
        action = f'<Action i:type="{_ACTION}">{_sql_content(rule.action, is_fresh)}</Action>'
    return (
        f'<{RULE_DESCRIPTION} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{_filter_element(rule.filter, is_fresh)}'
        f"{action}<CreatedAt>{timestamp(rule.created_at_ms)}</CreatedAt>"
        f"<Name>{xml_escaped(rule.name)}</Name></{RULE_DESCRIPTION}>"
    )


def _filter_element(filter_: Filter, is_fresh: bool) -> str:
    if isinstance(filter_, CorrelationFilter):
        content = _correlation_content(filter_)
    elif isinstance(filter_, TrueFilter | FalseFilter):
        content = _expression(filter_)
    else:
        content = _sql_content(filter_, is_fresh)
    return f'<Filter i:type="{_FILTER_NAMES[type(filter_)]}">{content}</Filter>'


def _expression(part: SqlFilter | SqlAction) -> str:
    return (
        f"<SqlExpression>{xml_escaped(part.expression)}</SqlExpression>"
        f"<CompatibilityLevel>{part.compatibility_level}</CompatibilityLevel>"
    )


def _sql_content(part: SqlFilter | SqlAction, is_fresh: bool) -> str:
    """Empty parameters come last, others before RequiresPreprocessing: so the service writes them."""
    needs = "<RequiresPreprocessing>true</RequiresPreprocessing>" if part.requires_preprocessing else ""
    if part.parameters:
        return _expression(part) + _pairs_element(_PARAMETERS, part.parameters) + needs
    return _expression(part) + needs + ("" if is_fresh else f"<{_PARAMETERS}/>")


def _correlation_content(filter_: CorrelationFilter) -> str:
    texts = ((name, getattr(filter_, field)) for name, field in CORRELATION_ELEMENTS)
    written = "".join(f"<{name}>{xml_escaped(text)}</{name}>" for name, text in texts if text is not None)
    return written + _pairs_element(_PROPERTIES, filter_.properties)


def _pairs_element(name: str, pairs: Pairs) -> str:
    if not pairs:
        return f"<{name}/>"
    inner = "".join(
        f"<{_PAIR}><Key>{xml_escaped(key)}</Key>{value_element(typed)}</{_PAIR}>" for key, typed in pairs
    )
    return f"<{name}>{inner}</{name}>"


_TICKS_PER_SECOND: Final = 10_000_000
_MINUTE: Final = 60 * _TICKS_PER_SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: 9999-12-31T23:59:59.9999999.
_INSTANT_MAX: Final = 3_652_059 * _DAY - 1
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_TEXT_CHARACTERS_MAX: Final = 64

_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
)
_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DURATION: Final = re.compile(
    r"(-?)P(?:([0-9]{1,8})Y)?(?:([0-9]{1,8})M)?(?:([0-9]{1,8})W)?(?:([0-9]{1,8})D)?"
    r"(?:T(?:([0-9]{1,10})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,12}))?S)?)?"
)
#: Years and months as .NET counts them.
_UNITS: Final = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY, _HOUR, _MINUTE, _TICKS_PER_SECOND)


# -- reading --


def parse_typed_value(key: str, type_name: str, text: str) -> TypedValue:
    """`type_name` without its prefix. Raises BadArgument."""
    name = f"The value of {key[:80]!r}"
    if type_name == "string":
        return TypedValue("string", text)
    text = text.strip()
    if type_name in ("int", "long"):
        return TypedValue(type_name, _bounded(name, text, _INT32 if type_name == "int" else _INT64))
    if type_name == "boolean":
        return TypedValue("boolean", flag_of(name, text))
    if type_name == "double":
        return TypedValue("double", _double(name, text))
    if type_name == "dateTime":
        ticks, has_zone = _instant(name, text)
        return TypedValue("dateTime", ticks, has_zone)
    if type_name == "duration":
        return TypedValue("duration", _duration(name, text))
    raise BadArgument(f"{name} has the type {type_name[:80]!r}; known are {', '.join(VALUE_TYPES)}.")


def _bounded(name: str, text: str, beyond: int) -> int:
    value = integer_of(name, text)
    if not -beyond <= value < beyond:
        raise BadArgument(f"{name}: {value} is out of range.")
    return value


def _double(name: str, text: str) -> float:
    value = float(text) if _DOUBLE.fullmatch(text) is not None else math.nan
    if not math.isfinite(value):
        raise BadArgument(f"{name}: {text[:80]!r} is not a finite number.")
    return value


def _instant(name: str, text: str) -> tuple[int, bool]:
    """Ticks since the year 1 in UTC, and whether a zone was written."""
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(digits) for digits in found.groups()[:6])
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError
        clock = hour * _HOUR + minute * _MINUTE + second * _TICKS_PER_SECOND + _fraction(found.group(7))
        zone = found.group(8)
        ticks = (date(year, month, day).toordinal() - 1) * _DAY + clock - _offset(zone)
        if not 0 <= ticks <= _INSTANT_MAX:
            raise ValueError
    except ValueError:
        raise BadArgument(f"{name}: {text[:80]!r} is not a time such as 2030-01-31T12:00:00Z.") from None
    return ticks, zone is not None


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 14 or minutes > 59:
        raise ValueError
    ticks = hours * _HOUR + minutes * _MINUTE
    return -ticks if zone[0] == "-" else ticks


def _duration(name: str, text: str) -> int:
    found = _DURATION.fullmatch(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None or text.endswith(("P", "T")):
        raise BadArgument(f"{name}: {text[:80]!r} is not a duration such as PT30S or P1DT12H.")
    ticks = _fraction(found.group(9))
    for digits, unit in zip(found.groups()[1:8], _UNITS, strict=True):
        ticks += 0 if digits is None else int(digits) * unit
    if ticks >= _INT64:
        raise BadArgument(f"{name}: {text[:80]!r} is too long.")
    return -ticks if found.group(1) else ticks


def _fraction(digits: str | None) -> int:
    """What is below 100 ns is cut."""
    return 0 if digits is None else int(digits[:7].ljust(7, "0"))


# -- writing --


def value_element(typed: TypedValue) -> str:
    """JS cuts five characters off the type, so its prefix must have four; a duration has another namespace."""
    namespace = SERIALIZATION if typed.type_name == "duration" else SCHEMA
    return (
        f'<Value i:type="d6p1:{typed.type_name}" xmlns:d6p1="{namespace}">'
        f"{xml_escaped(value_text(typed))}</Value>"
    )


def value_text(typed: TypedValue) -> str:
    value = typed.value
    if typed.type_name == "boolean":
        return "true" if value else "false"
    if typed.type_name == "double":
        return _double_text(float(value))
    if typed.type_name == "dateTime":
        return _instant_text(int(value)) + ("Z" if typed.has_zone else "")
    if typed.type_name == "duration":
        return _duration_text(int(value))
    return str(value)


def _double_text(value: float) -> str:
    """As .NET writes it: `5`, `0.1`, `1E+16`."""
    return repr(value).removesuffix(".0").replace("e", "E")


def _instant_text(ticks: int) -> str:
    days, rest = divmod(ticks, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    return f"{date.fromordinal(days + 1).isoformat()}T{hours:02d}:{minutes:02d}:{_seconds(rest, 2)}"


def _duration_text(ticks: int) -> str:
    days, rest = divmod(abs(ticks), _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    clock += f"{_seconds(rest, 1)}S" if rest else ""
    if days == 0 and clock == "":
        return "PT0S"
    return ("-" if ticks < 0 else "") + "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def _seconds(ticks: int, width: int) -> str:
    seconds, fraction = divmod(ticks, _TICKS_PER_SECOND)
    decimals = f"{fraction:07d}".rstrip("0")
    return f"{seconds:0{width}d}" + (f".{decimals}" if decimals else "")
