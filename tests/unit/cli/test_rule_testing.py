"""`busway rule test`: filters and actions on a message, without a server."""

import io
import json
from pathlib import Path

import pytest

from busway.cli.app import run
from busway.cli.rule_trial import TrialMessage
from busway.config.node import ConfigError
from busway.rules.subject import Instant, Span

MESSAGE = {
    "subject": "order",
    "session_id": "s",
    "time_to_live_ms": 1500,
    "application_properties": {"color": "red", "n": {"Type": "int", "Value": 5}, "empty": None, "yes": True},
}


@pytest.fixture
def message(tmp_path: Path) -> str:
    file = tmp_path / "message.json"
    file.write_text(json.dumps(MESSAGE))
    return str(file)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("color = 'red'", 0),
        ("COLOR = 'red' AND sys.Label = 'order'", 0),
        ("color = 'blue'", 3),
        ("size > 5", 3),
        ("NOT (size > 5)", 3),
        ("yes", 0),
        ("EXISTS(empty) AND empty IS NULL", 0),
        ("n / 0 = 1", 1),
        ("color = ", 2),
        ("sys.Colour = 1", 2),
        ("color = @p", 2),
        ("SET color = 'blue'", 0),
        ("SET sys.SequenceNumber = 1", 2),
        ("SET sys.TimeToLive = 'soon'", 1),
        ("", 2),
    ],
)
def test_the_exit_code_tells_the_result(
    text: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-33, T-36, T-60: 0 selects, 3 does not, 2 the text is wrong, 1 it fails on this message."""
    assert run(["rule", "test", text, "--message", message]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_every_part_is_shown_with_its_value_and_why_it_is_unknown(
    message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-31, T-33: a missing property makes a comparison unknown, and a part of it what stands around it."""
    run(["rule", "test", "color = 'red' AND (size > 10 OR n LIKE '5')", "--message", message, "--json"])
    told = json.loads(capsys.readouterr().out)
    parts = {part["expression"]: (part["depth"], part["result"], part["why"]) for part in told["parts"]}
    assert told["selects"] is False
    assert parts == {
        "color = 'red' AND (size > 10 OR n LIKE '5')": (0, "unknown", "a part of it is unknown"),
        "color = 'red'": (1, "true", None),
        "color": (2, "red", None),
        "size > 10 OR n LIKE '5'": (1, "unknown", "a part of it is unknown"),
        "size > 10": (2, "unknown", "the message has no property 'size'"),
        "size": (3, "unknown", "the message has no property 'size'"),
        "n LIKE '5'": (2, "unknown", "LIKE needs two texts"),
        "n": (3, 5, None),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("color = 5", "a text and a number do not compare"),
        ("yes < yes", "a boolean and a boolean do not compare"),
        ("empty = 1", "it is null"),
        ("sys.To = 'x'", "the message has no To"),
        ("size IN (1, 2)", "its left side is unknown"),
        ("color IN (1, 2)", "the values do not compare"),
        ("color", "a text is no truth value"),
        ("size + 1 = 2", "a part of it is unknown"),
        ("n / 0 = 1", "zero"),
    ],
)
def test_the_reason_is_said_in_words(
    text: str, why: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-30, T-31, T-35: the reason is said in words."""
    run(["rule", "test", text, "--message", message])
    assert why in capsys.readouterr().out


def test_an_action_shows_what_it_changes(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """T-51, T-52, T-53: before and after."""
    action = "SET n = n * 2; REMOVE color; SET sys.To = 'x'; SET fresh = n + 1"
    assert run(["rule", "test", action, "--message", message]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        'color "red" → (removed)',
        "n 5 → 10",
        "empty null",
        "yes true",
        'sys.Label "order"',
        'sys.SessionId "s"',
        'sys.TimeToLive {"Type": "duration", "Value": "PT1.5S"}',
        "fresh (none) → 11",
        'sys.To (none) → "x"',
    ]
    run(["rule", "test", action, "--message", message, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["before"]["properties"]["n"] == 5
    assert told["after"]["properties"]["n"] == 10


def test_a_syntax_error_points_at_its_place(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """T-36: the text, and a caret below it."""
    assert run(["rule", "test", "color == 'red'", "--message", message]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("busway: At character 8")
    assert lines[1:] == ["color == 'red'", "       ^"]


def test_parameters_and_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-28: typed by JSON; what busway peek --json prints is a message."""

    class Input:
        buffer = io.BytesIO(
            b'[{"sequence_number": 7, "body": "x", "properties": {"n": 6}, "state": "active"}]'
        )

    monkeypatch.setattr("sys.stdin", Input)
    call = ["rule", "test", "n = @p AND sys.SequenceNumber = 7", "--message", "-", "--parameter", "p:=6"]
    assert run(call) == 0
    assert "selects the message" in capsys.readouterr().out


def test_system_properties_have_their_types() -> None:
    """T-24: system properties have their types."""
    subject = TrialMessage.read(
        '{"MessageId": "m", "enqueued_time": "2030-01-01T00:00:00Z", "time_to_live": "PT5S", "state": "deferred",'
        ' "delivery_count": 2, "ForcePersistence": true, "reply-to": null}'
    )
    assert subject.system("MessageId") == "m"
    assert isinstance(subject.system("EnqueuedTimeUtc"), Instant)
    assert subject.system("TimeToLive") == Span(50_000_000)
    assert (subject.system("State"), subject.system("DeliveryCount")) == (1, 2)
    assert subject.system("ForcePersistence") is True
    assert subject.system("ReplyTo") is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[]", "an object"),
        ("{", "Line 1"),
        ('{"colour": 1}', "colour: unknown key"),
        ('{"subjekt": "x"}', "did you mean 'subject'?"),
        ('{"subject": 5}', "subject: a text"),
        ('{"delivery_count": "5"}', "delivery_count: a whole number"),
        ('{"enqueued_time": "soon"}', "enqueued_time: a time such as"),
        ('{"time_to_live": "5"}', "time_to_live: not a duration"),
        ('{"properties": {"a": [1]}}', "properties.a: a text, a number"),
    ],
)
def test_a_message_that_is_wrong_is_told_with_its_place(text: str, part: str) -> None:
    """T-2: the key and what is expected."""
    with pytest.raises(ConfigError, match=part.replace("?", r"\?")):
        TrialMessage.read(text)
