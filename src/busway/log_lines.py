"""The lines of the log: one record, one line, as text or as JSON, without secrets.

Theory of operation. Every handler that we set up has the same filter. It writes the record's message out, takes
secrets out of it (`redacted`) and makes control characters visible, so that nobody who chooses a name can forge a
line. A traceback is written out there too, so that it passes the same net. Only then the record is formatted.

A record may carry structured fields: `extra={"fields": {...}}`. In JSON they are the member `fields`; text leaves
them out, because the message says the same in words.

Secrets are taken out of whatever must not reach a log, whoever wrote the line. Our own code puts no key into a
sentence. This is the net below it: texts of libraries, of exceptions, and of clients who write a connection string
where a name belongs. It looks for the shapes that secrets have here:

  SharedAccessKey=…, SharedAccessSignature=…   in connection strings
  sig=…                                       in signatures, also when they are percent-escaped once more
  primaryKey, secondaryKey, SharedAccessKey   as members of JSON or elements of XML
  Bearer …                                    tokens of other kinds
  43 characters of base64 and a `=`           a key or signature of 256 bits, without a name beside it
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

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


JSON: Final = "json"

_TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DEPTH_MAX: Final = 4
_plain = logging.Formatter()


def log_to_stream(line_format: str, level: str, stream: TextIO | None = None) -> logging.Handler:
    """Sends the log to `stream` (standard error), in place of whatever was set up before."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    prepare(handler, line_format)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


def prepare(handler: logging.Handler, line_format: str) -> None:
    """Gives a handler the net and the form of its lines."""
    handler.addFilter(SecretsFilter())
    handler.setFormatter(JsonLines() if line_format == JSON else logging.Formatter(_TEXT_FORMAT))


class SecretsFilter(logging.Filter):
    """See the head of this file. Lets every record through, changed for all who come after it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = _clean(_message(record))
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = _plain.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redacted(record.exc_text)
        if record.stack_info:
            record.stack_info = redacted(record.stack_info)
        fields = getattr(record, "fields", None)
        if fields is not None:
            record.fields = _clean_value(fields)
        return True


def _message(record: logging.LogRecord) -> str:
    """A record whose arguments do not fit its message is told as it is, rather than lost."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {record.args!r}"


def _clean(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", redacted(text))


def _clean_value(value: object, depth: int = 0) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < _DEPTH_MAX:
        return {_clean(str(name)): _clean_value(member, depth + 1) for name, member in value.items()}
    if isinstance(value, list | tuple) and depth < _DEPTH_MAX:
        return [_clean_value(member, depth + 1) for member in value]
    return _clean(str(value))


class JsonLines(logging.Formatter):
    """One object on one line: time, level, logger, message; fields, exception and stack where there are some."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields is not None:
            line["fields"] = fields
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)
