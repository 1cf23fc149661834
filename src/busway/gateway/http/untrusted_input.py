"""JSON and XML from strangers, read so that nobody can mean something else by it.

JSON: no member twice, no numbers that are none, no text that is no text. Python's parser takes the last of several
equal members, `NaN`, and halves of surrogate pairs; each of them is something that a proxy in front may read
differently, or that has no place in a message.

XML: bounded, without DTD, entities or another encoding than UTF-8. defusedxml refuses document types, entity
declarations and external references. The rest is ours: the size, the depth, the number of elements, and the
encoding (the parser gets text, so a declared encoding cannot make it read the bytes differently from us).
"""

import json
import re
from typing import Final, NoReturn
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from busway.model.errors import BadArgument


def parse_json(text: bytes, what: str) -> object:
    """`what` begins the sentence of the BadArgument that is raised for everything that is not plain JSON."""
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_Members(what), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise BadArgument(f"{what} is not UTF-8.") from error
    except RecursionError as error:
        raise BadArgument(f"{what} is nested too deeply.") from error
    except ValueError as error:
        raise BadArgument(f"{what} is not JSON: {error}.") from error


def is_text(value: str) -> bool:
    """False when half of a surrogate pair stands alone: that has no UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Members:
    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise BadArgument(f"{self._what} has a member twice.")
        return members


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


BODY_BYTES_MAX: Final = 64 * 1024
_DEPTH_MAX: Final = 32
_ELEMENTS_MAX: Final = 1_000
_DECLARED_ENCODING: Final = re.compile(r"""\s*<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([^"']{0,64})["']""")
_ENCODINGS: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def parse_xml(body: bytes) -> Element:
    """The root element. Raises BadArgument for everything that is not plain, small, well-formed XML."""
    parser = DefusedXMLParser(target=_BoundedTree(), forbid_dtd=True)
    try:
        parser.feed(_decoded(body))
        root = parser.close()
    except DefusedXmlException as error:
        raise BadArgument("The body is refused: it has a document type, an entity or a reference.") from error
    except ParseError as error:
        raise BadArgument(f"The body is not well-formed XML: {error}.") from error
    if not isinstance(root, Element):
        raise BadArgument("The body is empty; XML was expected.")
    return root


def flag_of(name: str, text: str) -> bool:
    """`name` is what the sentence of a refusal calls it, here and below."""
    if text.lower() not in _FLAGS:
        raise BadArgument(f"{name}: {text[:80]!r} is not true or false.")
    return _FLAGS[text.lower()]


def integer_of(name: str, text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BadArgument(f"{name}: {text[:80]!r} is not a whole number.")
    return int(text)


def _decoded(body: bytes) -> str:
    if len(body) > BODY_BYTES_MAX:
        raise BadArgument(f"The body has more than {BODY_BYTES_MAX} bytes.")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadArgument("The body is not UTF-8.") from error
    if "\x00" in text:
        # Bytes of UTF-16 are UTF-8 with zeros between, and expat would take them for what they are.
        raise BadArgument("The body is not UTF-8.")
    declared = _DECLARED_ENCODING.match(text)
    if declared is not None and declared.group(1).lower() not in _ENCODINGS:
        raise BadArgument(f"The body declares the encoding {declared.group(1)!r}; only UTF-8 is read.")
    return text


class _BoundedTree(TreeBuilder):
    """Builds the tree, and stops at what no client of ours ever sends."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._elements = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._elements += 1
        if self._depth > _DEPTH_MAX or self._elements > _ELEMENTS_MAX:
            raise BadArgument(
                f"The body is refused: more than {_DEPTH_MAX} levels or {_ELEMENTS_MAX} elements of XML."
            )
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)
