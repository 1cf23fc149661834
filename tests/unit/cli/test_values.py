"""What people type on the command line, turned into values."""

import io
import sys
from pathlib import Path

import pytest

from busway.cli.keys import parse_rights
from busway.cli.output import JsonList, format_instant, parse_instant_ms, print_table, progress
from busway.cli.receiving import message_as_object
from busway.cli.sending import parse_properties
from busway.cli.verbs import WrongCall, find_target
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.data_directory import DataDirectory


def test_times_are_dates_or_durations_from_now() -> None:
    """S-30: --schedule takes both."""
    assert parse_instant_ms("2030-01-01T00:00:00Z", "--schedule", 5) == 1_893_456_000_000
    assert parse_instant_ms("2030-01-01T00:00:00", "--schedule", 5) == 1_893_456_000_000
    assert parse_instant_ms("2030-01-01T02:00:00+02:00", "--schedule", 5) == 1_893_456_000_000
    assert parse_instant_ms("PT1M30S", "--schedule", 5) == 90_005
    assert format_instant(1_893_456_000_007) == "2030-01-01T00:00:00.007Z"
    assert format_instant(1 << 60) == str(1 << 60)


def test_properties_are_texts_or_json_values() -> None:
    """M-31: NAME=TEXT is a string, NAME:=JSON keeps its type."""
    assert parse_properties(["a=1", "b:=1", "c:=true", "d:=1.5", "e:=null", "f=x=y", "g="]) == {
        "a": "1", "b": 1, "c": True, "d": 1.5, "e": None, "f": "x=y", "g": "",
    }  # fmt: skip


def test_manage_brings_all_rights_along() -> None:
    """A-1: a rule with Manage lists all three."""
    assert parse_rights("manage") == ("Manage", "Listen", "Send")
    assert parse_rights("send, LISTEN") == ("Listen", "Send")
    with pytest.raises(WrongCall):
        parse_rights("")


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names come from strangers: an escape sequence is shown, not obeyed."""
    print_table(("NAME",), [("\x1b[2Jevil",), (None,), (True,)])
    assert capsys.readouterr().out == "NAME\n�[2Jevil\n-\ntrue\n"


def test_a_json_list_is_whole_at_any_length(capsys: pytest.CaptureFixture[str]) -> None:
    """Command-line contract: --json prints one JSON value."""
    JsonList().close()
    assert capsys.readouterr().out == "[]\n"
    several = JsonList()
    several.add({"a": 1})
    several.add({"a": 2})
    several.close()
    assert capsys.readouterr().out == '[\n{"a": 1},\n{"a": 2}\n]\n'


def test_a_body_that_is_no_text_comes_as_base64() -> None:
    """M-28: every byte of a body can be got out."""
    binary = message_as_object(ServiceBusReceivedMessage(ServiceBusMessage(b"\xff\x00").encode()))
    assert binary["body_base64"] == "/wA="
    text = message_as_object(ServiceBusReceivedMessage(ServiceBusMessage("ü".encode()).encode()))
    assert text["body"] == "ü"


def test_no_bar_is_drawn_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command-line contract: progress only on a terminal."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("Working", 3) as bar:
        bar.advance(3)
    assert stream.getvalue() == ""


def test_a_connection_string_of_the_data_directorys_server_brings_its_authority(tmp_path: Path) -> None:
    """A-11: who exports the connection string and names the directory too trusts that server's certificate."""
    DataDirectory(tmp_path).write_server({"host": "127.0.0.1", "port": 7007, "ca_file": "/its/ca.pem"})
    key = "SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    same = find_target(f"Endpoint=sb://127.0.0.1:7007;{key}", None, tmp_path)
    other = find_target(f"Endpoint=sb://127.0.0.1:7008;{key}", None, tmp_path)
    given = find_target(f"Endpoint=sb://127.0.0.1:7007;{key}", Path("/mine.pem"), tmp_path)
    assert (same.ca_file, other.ca_file, given.ca_file) == (Path("/its/ca.pem"), None, Path("/mine.pem"))
