"""The form of the log, and what never gets into it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from busway.log_lines import HIDDEN, log_to_stream

SECRET = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I="


@pytest.fixture(autouse=True)
def _kept_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


def lines_of(line_format: str, level: str = "info") -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    log_to_stream(line_format, level, stream)
    return stream, logging.getLogger("busway.tests")


def test_a_json_line_has_time_level_logger_message_and_fields() -> None:
    """O-7: one object a line."""
    stream, log = lines_of("json")
    log.warning("store %s failed", "store-0", extra={"fields": {"store": "store-0", "attempt": 3}})
    log.info("two")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "busway.tests",
        "message": "store store-0 failed",
        "fields": {"store": "store-0", "attempt": 3},
    }
    assert "fields" not in second


def test_text_is_one_line_for_people() -> None:
    """O-7: the form it always had."""
    stream, log = lines_of("text")
    log.info("stopping")
    assert stream.getvalue().endswith(" INFO busway.tests stopping\n")


def test_what_is_below_the_level_is_left_out() -> None:
    """O-7: `--log-level`."""
    stream, log = lines_of("text", "error")
    log.warning("hush")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_no_secret_gets_into_a_line(line_format: str) -> None:
    """O-7, A-4: neither by the message, its arguments, its fields nor a traceback."""
    stream, log = lines_of(line_format)
    log.info(f"SharedAccessKey={SECRET}")
    log.info("put token %s", f"SharedAccessSignature sr=x&sig={SECRET}&se=1")
    log.info("%r", {"primaryKey": SECRET})
    log.info("%s", SECRET.encode())
    log.info("fields", extra={"fields": {"token": f"sig={SECRET}", "inner": [{"k": SECRET}, (SECRET,)]}})
    log.info("too few %s %s", SECRET)
    try:
        raise ValueError(f"sig={SECRET}")
    except ValueError:
        log.exception("failed", stack_info=True)
    written = stream.getvalue()
    assert SECRET not in written
    assert written.count(HIDDEN) >= 7
    assert "ValueError" in written


@pytest.mark.parametrize("line_format", ["text", "json"])
@pytest.mark.parametrize("control", ["\n", "\r", "\x1b", "\x00", "\u2028", "\x85"])
def test_nobody_can_forge_a_line(line_format: str, control: str) -> None:
    """O-7: control characters in names that clients choose are made visible."""
    stream, log = lines_of(line_format)
    log.info(
        "peer said %s", f"a{control}2026 INFO busway all is well", extra={"fields": {"n": f"x{control}"}}
    )
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert control not in written[:-1]


def test_a_traceback_stays_on_its_json_line() -> None:
    """O-7: one record, one line."""
    stream, log = lines_of("json")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: no")


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    """O-7: a line is never lost for what somebody put into it."""
    stream, log = lines_of("json")
    nested: dict[str, object] = {}
    nested["self"] = nested
    log.info("odd", extra={"fields": {"bytes": b"x", "set": {1}, "nested": nested, "nan": float("nan")}})
    log.info("\ud800")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["odd", "\ud800"]
