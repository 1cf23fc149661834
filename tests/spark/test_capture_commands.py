"""`busway pipeline capture`, `compact` and `replay` as they are called: wrong calls, and jobs that need no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busway.cli.app import run
from busway.cli.pipeline.capture import parse_size
from busway.cli.pipeline.history import parse_speed
from busway.cli.verbs import WrongCall
from busway_spark.pipeline.capture.capture_commit import BatchName
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import events, numbers, writer


def filled(root: Path) -> Path:
    sink = writer(root)
    for number in range(3):
        name = BatchName("query", number)
        rows = events(range(10 * number, 10 * number + 10))
        sink.commit([sink.write_batch(name, iter([rows]))], number)
    return root


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (["capture", "clicks", "--to", "x", "--format", "csv"], "--format: parquet or delta"),
        (["capture", "clicks", "--to", "x", "--compression", "zip"], "--compression: zstd"),
        (["capture", "clicks", "--to", "x", "--from", "soon"], "--from"),
        (["compact", "x", "--target-size", "many"], "--target-size: a size like 128M"),
        (["replay", "x", "--entity", "a", "--into", "b", "--speed", "fast"], "--speed: 1x"),
        (
            ["replay", "x", "--entity", "a", "--into", "b", "--from", "2026-02-01", "--until", "2026-01-01"],
            "--until",
        ),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_sentence(
    call: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: the option is named."""
    assert run(["pipeline", *call]) == 2
    assert sentence in capsys.readouterr().err


def test_compact_tells_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compact: sentences for people, figures for programs."""
    filled(tmp_path)
    assert run(["pipeline", "compact", str(tmp_path), "--dry-run"]) == 0
    told = capsys.readouterr()
    assert told.out == "3 files in 1 folders would become 1.\n"
    assert "3 files would become 1" in told.err
    assert run(["pipeline", "compact", str(tmp_path), "--json", "--quiet"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["files_before"], figures["files_after"], figures["dry_run"]) == (3, 1, False)
    assert len(numbers(tmp_path)) == 30


def test_replay_tells_what_it_did(
    server: RunningServer, hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replay: done is told, doing it again must be asked for, and a failure ends with 1."""
    call = ["pipeline", "replay", str(filled(tmp_path)), "--entity", "clicks", "--connection-string"]
    call += [server.connection_string, "--speed", "max"]
    assert run([*call, "--into", hub]) == 0
    told = capsys.readouterr()
    assert told.out == f"clicks: 30 replayed into {hub}.\n"
    assert "30 replayed" in told.err
    assert run([*call, "--into", hub, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows"] == 0
    assert "--again" in json.loads(told.err.splitlines()[0])["step"]
    assert run([*call, "--into", "nobody"]) == 1
    assert "no hub, queue or topic 'nobody'" in capsys.readouterr().err


def test_speeds_and_sizes() -> None:
    """Command-line contract: as people write them."""
    assert [parse_speed(text) for text in ("1x", "10X", "0.5", "max")] == [1.0, 10.0, 0.5, 0.0]
    assert [parse_size(text, "-") for text in ("64M", "1GiB", "512kb", "7")] == [
        64 << 20,
        1 << 30,
        512 << 10,
        7,
    ]
    for text in ("0x", "-1x", "x", "1e9"):
        with pytest.raises(WrongCall):
            parse_speed(text)
    for text in ("0", "M", "-1", "1.5M"):
        with pytest.raises(WrongCall):
            parse_size(text, "-")
