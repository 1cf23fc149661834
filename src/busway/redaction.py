"""Secrets taken out of text: what must not reach a log, whoever wrote the line.

Our own code puts no key into a sentence. This is the net below it: texts of libraries, of exceptions, and of
clients who write a connection string where a name belongs. It looks for the shapes that secrets have here:

  SharedAccessKey=…, SharedAccessSignature=…   in connection strings
  sig=…                                       in signatures, also when they are percent-escaped once more
  primaryKey, secondaryKey, SharedAccessKey   as members of JSON or elements of XML
  Bearer …                                    tokens of other kinds
  43 characters of base64 and a `=`           a key or signature of 256 bits, without a name beside it
"""

import re
from typing import Final

HIDDEN: Final = "***"

#: Every part is a plain run of one class of characters, so each pattern takes linear time.
_ASSIGNED: Final = re.compile(
    r"((?:SharedAccess(?:Key|Signature)|(?<![a-z])sig|\bPassword)\s{0,4}(?:=|%3D)\s{0,4})(?:SharedAccessSignature\s{1,4})?"
    r"""(?!\s)[^;&\s"'<>,)\]}]+""",
    re.IGNORECASE,
)
_MEMBER: Final = re.compile(
    r"""((?:primary_?Key|secondary_?Key|SharedAccessKey|(?<![a-z])sig)["']?\s{0,4}[:>]\s{0,4}["']?)[^"'<>\s,}\]&;]+""",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(\bBearer\s{1,4})[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
_BASE64_256: Final = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]|%2[BbFf]){43}(?:=|%3[Dd])")


def redacted(text: str) -> str:
    """The text with every secret replaced by stars."""
    text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    text = _MEMBER.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _BASE64_256.sub(HIDDEN, text)
