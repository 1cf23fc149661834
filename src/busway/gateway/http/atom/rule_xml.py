"""Rules of subscriptions as XML (E-70…E-74): filter, action, typed values. Texts are checked by the broker."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from busway.atom_names import CONNECT, CORRELATION_ELEMENTS, INSTANCE
from busway.gateway.http.atom.atom import is_nil, local_name, text_of, timestamp, xml_escaped
from busway.gateway.http.atom.typed_value_xml import parse_typed_value, value_element
from busway.gateway.http.xml_input import flag_of, integer_of
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument
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
