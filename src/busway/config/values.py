"""Values with a type, as the configuration file writes them: parameters and correlation properties of rules.

Plain JSON where JSON has the type: a text is a string, a whole number a long, a number with a point or an
exponent a double, true and false are boolean. Everything else names its type:
`{"Type": "int", "Value": 5}`, `{"Type": "dateTime", "Value": "2030-01-01T08:00:00Z"}`,
`{"Type": "duration", "Value": "PT30S"}`, `{"Type": "double", "Value": "INF"}`.
"""

import math
from typing import Final

from busway.config.node import Node
from busway.rules.rule import VALUE_TYPES, TypedValue
from busway.rules.time_text import instant_of
from busway.tick_text import format_span, has_zone, moment_text, parse_span

Pairs = tuple[tuple[str, TypedValue], ...]
Json = dict[str, object]

_INT_BITS: Final = {"int": 32, "long": 64}
_UNUSUAL_DOUBLES: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}


def read_pairs(node: Node) -> Pairs:
    """The members of an object, in their order; any name may be given."""
    return tuple((name, read_value(member)) for name, member in node.any_members().items())


def read_value(node: Node) -> TypedValue:
    value = node.value
    if isinstance(value, dict):
        return _read_typed(node)
    if isinstance(value, bool):
        return TypedValue("boolean", value)
    if isinstance(value, str):
        return TypedValue("string", value)
    if isinstance(value, int):
        return _whole(node, "long", value)
    if isinstance(value, float) and math.isfinite(value):
        return TypedValue("double", value)
    raise node.error(
        'a text, a number, true, false or an object like {"Type": "int", "Value": 5} is expected'
    )


def _read_typed(node: Node) -> TypedValue:
    members = node.members(("Type", "Value"))
    if len(members) < 2:
        raise node.error('both "Type" and "Value" are needed')
    type_name = members["Type"].text()
    if type_name not in VALUE_TYPES:
        raise members["Type"].error(f"'{type_name[:60]}' is not one of {', '.join(VALUE_TYPES)}")
    place = members["Value"]
    value = place.value
    if type_name == "dateTime":
        return _moment(place)
    if type_name == "duration":
        return TypedValue(type_name, _ticks(place))
    if type_name in _INT_BITS and isinstance(value, int) and not isinstance(value, bool):
        return _whole(place, type_name, value)
    if type_name == "boolean" and isinstance(value, bool):
        return TypedValue(type_name, value)
    if type_name == "string":
        return TypedValue(type_name, place.text())
    if type_name == "double":
        return TypedValue(type_name, _double(place))
    raise place.error(f"this is not a value of type {type_name}")


def _whole(node: Node, type_name: str, value: int) -> TypedValue:
    half = 1 << (_INT_BITS[type_name] - 1)
    if not -half <= value < half:
        raise node.error(f"the number does not fit into {type_name} ({_INT_BITS[type_name]} bits)")
    return TypedValue(type_name, value)


def _double(node: Node) -> float:
    value = node.value
    if isinstance(value, str) and value in _UNUSUAL_DOUBLES:
        return _UNUSUAL_DOUBLES[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            double = float(value)
        except OverflowError:
            double = math.inf
        if math.isfinite(double):
            return double
    raise node.error('a number, or one of "NaN", "INF", "-INF" is expected')


def _moment(node: Node) -> TypedValue:
    text = node.text()
    moment = instant_of(text)
    if moment is None:
        raise node.error(f"'{text[:60]}' is not a time such as 2030-01-01T08:00:00Z")
    return TypedValue("dateTime", moment.ticks, has_zone(text))


def _ticks(node: Node) -> int:
    text = node.text()
    try:
        return parse_span(text)
    except ValueError as error:
        raise node.error(f"'{text[:60]}' is {error}") from None


def write_pairs(pairs: Pairs) -> Json:
    return {name: write_value(value) for name, value in pairs}


def write_value(typed: TypedValue) -> object:
    """What `read_value` reads back as the same value of the same type."""
    type_name, value = typed.type_name, typed.value
    if type_name in ("string", "boolean", "long"):
        return value
    if type_name == "double":
        return _written_double(float(value))
    if type_name == "dateTime":
        return {"Type": type_name, "Value": moment_text(typed)}
    if type_name == "duration":
        return {"Type": type_name, "Value": format_span(int(value))}
    return {"Type": type_name, "Value": value}


def _written_double(value: float) -> object:
    if math.isfinite(value):
        return value
    text = "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return {"Type": "double", "Value": text}
