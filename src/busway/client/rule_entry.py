"""A rule of a subscription as the management API tells it: read from and written to ATOM entries.

Values keep the type they were written with (E-64, E-74): the type is a name in the namespace of XML Schema, or of
.NET's serialization for durations.
"""

import xml.etree.ElementTree as ET
from typing import Final

from busway import atom_names
from busway.client.entity_entry import ATOM, CONNECT, SCHEMA_TYPE, BadAnswer, document_of
from busway.rules.rule import (
    COMPATIBILITY_LEVEL,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.time_text import instant_of
from busway.tick_text import format_span, has_zone, moment_text, parse_span

Pairs = tuple[tuple[str, TypedValue], ...]

_PAIR: Final = f"{CONNECT}KeyValueOfstringanyType"
#: The prefix that stands for the schema's namespace in values of `type` attributes.
_PREFIX: Final = "d6p1"


def read_rule(entry: ET.Element) -> Rule:
    description = entry.find(f"{ATOM}content/{CONNECT}RuleDescription")
    if description is None:
        raise BadAnswer("The server answered with an entry that describes no rule.")
    name = description.findtext(f"{CONNECT}Name") or entry.findtext(f"{ATOM}title") or ""
    return Rule(
        name,
        _read_filter(description.find(f"{CONNECT}Filter")),
        _read_action(description.find(f"{CONNECT}Action")),
    )


def write_rule(rule: Rule) -> bytes:
    return document_of(rule_element(rule, "RuleDescription"))


def rule_element(rule: Rule, element: str) -> ET.Element:
    """`element` is RuleDescription, or DefaultRuleDescription inside a new subscription."""
    description = ET.Element(f"{CONNECT}{element}")
    _write_filter(description, rule.filter)
    _write_action(description, rule.action)
    ET.SubElement(description, f"{CONNECT}Name").text = rule.name
    return description


def _type_of(element: ET.Element) -> str:
    return (element.get(SCHEMA_TYPE) or "").rpartition(":")[2]


def _read_filter(element: ET.Element | None) -> Filter:
    kind = "" if element is None else _type_of(element)
    if element is None or kind not in ("SqlFilter", "TrueFilter", "FalseFilter", "CorrelationFilter"):
        raise BadAnswer(f"The server answered with a filter of an unknown type {kind[:60]!r}.")
    if kind == "CorrelationFilter":
        texts = {
            field: element.findtext(f"{CONNECT}{name}")
            for name, field in atom_names.CORRELATION_ELEMENTS
            if element.find(f"{CONNECT}{name}") is not None
        }
        return CorrelationFilter(**texts, properties=_read_pairs(element.find(f"{CONNECT}Properties")))
    expression, parameters, level, is_prepared = _read_sql(element)
    if kind == "TrueFilter":
        return TrueFilter(expression or "1=1", parameters, level, is_prepared)
    if kind == "FalseFilter":
        return FalseFilter(expression or "1=0", parameters, level, is_prepared)
    return SqlFilter(expression, parameters, level, is_prepared)


def _read_action(element: ET.Element | None) -> SqlAction | None:
    if element is None or _type_of(element) == "EmptyRuleAction":
        return None
    return SqlAction(*_read_sql(element))


def _read_sql(element: ET.Element) -> tuple[str, Pairs, int, bool]:
    level = element.findtext(f"{CONNECT}CompatibilityLevel") or ""
    return (
        element.findtext(f"{CONNECT}SqlExpression") or "",
        _read_pairs(element.find(f"{CONNECT}Parameters")),
        int(level) if level.isdecimal() and len(level) < 10 else COMPATIBILITY_LEVEL,
        (element.findtext(f"{CONNECT}RequiresPreprocessing") or "") == "true",
    )


def _read_pairs(element: ET.Element | None) -> Pairs:
    return () if element is None else tuple(_read_pair(pair) for pair in element.findall(_PAIR))


def _read_pair(pair: ET.Element) -> tuple[str, TypedValue]:
    name = pair.findtext(f"{CONNECT}Key") or ""
    value = pair.find(f"{CONNECT}Value")
    if value is None:
        raise BadAnswer(f"The server answered with a value of {name[:60]!r} that is missing.")
    try:
        return name, _typed(_type_of(value), value.text or "")
    except ValueError as error:
        raise BadAnswer(f"The server answered with a value of {name[:60]!r} that cannot be read.") from error


def _typed(type_name: str, text: str) -> TypedValue:
    if type_name in ("int", "long"):
        return TypedValue(type_name, int(text))
    if type_name == "boolean":
        return TypedValue(type_name, text in ("true", "1"))
    if type_name == "double":
        return TypedValue(type_name, float(text.replace("INF", "inf")))
    if type_name == "duration":
        return TypedValue(type_name, parse_span(text))
    if type_name == "dateTime":
        moment = instant_of(text)
        if moment is None:
            raise ValueError("not a moment")
        return TypedValue(type_name, moment.ticks, has_zone(text))
    if type_name == "string":
        return TypedValue(type_name, text)
    raise ValueError("not a known type")


def _write_filter(parent: ET.Element, filter_: Filter) -> None:
    element = ET.SubElement(parent, f"{CONNECT}Filter")
    if not isinstance(filter_, CorrelationFilter):
        element.set(SCHEMA_TYPE, type(filter_).__name__)
        _write_sql(element, filter_)
        return
    element.set(SCHEMA_TYPE, "CorrelationFilter")
    for name, field in atom_names.CORRELATION_ELEMENTS:
        value = getattr(filter_, field)
        if value is not None:
            ET.SubElement(element, f"{CONNECT}{name}").text = value
    _write_pairs(ET.SubElement(element, f"{CONNECT}Properties"), filter_.properties)


def _write_action(parent: ET.Element, action: SqlAction | None) -> None:
    element = ET.SubElement(parent, f"{CONNECT}Action")
    element.set(SCHEMA_TYPE, "EmptyRuleAction" if action is None else "SqlRuleAction")
    if action is not None:
        _write_sql(element, action)


def _write_sql(element: ET.Element, part: SqlFilter | SqlAction) -> None:
    ET.SubElement(element, f"{CONNECT}SqlExpression").text = part.expression
    ET.SubElement(element, f"{CONNECT}CompatibilityLevel").text = str(part.compatibility_level)
    _write_pairs(ET.SubElement(element, f"{CONNECT}Parameters"), part.parameters)
    is_prepared = "true" if part.requires_preprocessing else "false"
    ET.SubElement(element, f"{CONNECT}RequiresPreprocessing").text = is_prepared


def _write_pairs(parent: ET.Element, pairs: Pairs) -> None:
    for name, typed in pairs:
        pair = ET.SubElement(parent, _PAIR)
        ET.SubElement(pair, f"{CONNECT}Key").text = name
        is_span = typed.type_name == "duration"
        declared = {
            f"xmlns:{_PREFIX}": atom_names.SERIALIZATION if is_span else atom_names.SCHEMA,
            SCHEMA_TYPE: f"{_PREFIX}:{typed.type_name}",
        }
        ET.SubElement(pair, f"{CONNECT}Value", declared).text = _text_of(typed)


def _text_of(typed: TypedValue) -> str:
    value = typed.value
    if typed.type_name == "boolean":
        return "true" if value else "false"
    if typed.type_name == "dateTime":
        return moment_text(typed)
    if typed.type_name == "duration":
        return format_span(int(value))
    if typed.type_name == "double":
        return repr(float(value)).replace("inf", "INF").replace("nan", "NaN")
    return str(value)
