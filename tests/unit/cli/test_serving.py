"""`busway serve` and the `Server` section of a configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busway.cli.app import run
from busway.serve_options import ServeOptions

Served = list[ServeOptions]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """What a server was asked to start with."""
    asked: Served = []
    monkeypatch.setattr("busway.server.serve", lambda options, _: asked.append(options))
    for name in ("BUSWAY_DATA", "BUSWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    return asked


def config(folder: Path, **server: object) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({"Format": "busway/1", "Server": server}))
    return str(file)


def test_the_file_sets_what_the_command_line_does_not(tmp_path: Path, served: Served) -> None:
    """Configuration: the `Server` section has what the command line offers."""
    file = config(
        tmp_path, Data=str(tmp_path / "d"), Port=0, Store=["sqlite:a", "sqlite:b"], DevKey=True, ReadyFile="r"
    )
    assert run(["serve", "--config", file]) == 0
    [options] = served
    assert (options.data, options.port, options.dev_key) == (tmp_path / "d", 0, True)
    assert (options.store_urls, options.ready_file) == (("sqlite:a", "sqlite:b"), Path("r"))
    assert options.host == "127.0.0.1"


def test_the_command_line_and_variables_win(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configuration: who starts a server has the last word, also with a value that is the default."""
    monkeypatch.setenv("BUSWAY_DATA", str(tmp_path / "variable"))
    file = config(tmp_path, Data="file", Port=1, Host="::1", Stores=2)
    assert run(["serve", "--config", file, "--port", "5672"]) == 0
    [options] = served
    assert (options.port, options.data) == (5672, tmp_path / "variable")
    assert (options.host, options.stores) == ("::1", 2)


def test_a_section_that_makes_no_sense_is_one_sentence(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Configuration: what is refused on the command line is refused in the file."""
    assert run(["serve", "--config", config(tmp_path, Port=70_000)]) == 2
    assert "--port must be between" in capsys.readouterr().err
    assert run(["serve", "--config", config(tmp_path, Prot=1)]) == 1
    assert "did you mean 'Port'?" in capsys.readouterr().err
    assert served == []


def test_the_form_of_the_log_is_an_option(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """O-7: text unless told otherwise; a word that is not known is a wrong call."""
    assert run(["serve"]) == 0
    assert run(["serve", "--log-format", "json", "--log-level", "debug"]) == 0
    assert run(["serve", "--config", config(tmp_path, LogFormat="json", LogLevel="error")]) == 0
    assert [(options.log_format, options.log_level) for options in served] == [
        ("text", "info"),
        ("json", "debug"),
        ("json", "error"),
    ]
    assert run(["serve", "--log-format", "xml"]) == 2
    assert run(["serve", "--log-level", "loud"]) == 2
    assert "--log-format must be text or json, not 'xml'." in capsys.readouterr().err


def test_the_journal_is_an_option(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Journal: none unless asked for, by an option, a variable or the file; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--journal", "j", "--journal-seconds", "5", "--journal-keep-days", "7"]) == 0
    assert run(["serve", "--config", config(tmp_path, Journal="k", JournalSeconds=9, JournalKeepDays=1)]) == 0
    monkeypatch.setenv("BUSWAY_JOURNAL", "v")
    assert run(["serve"]) == 0
    asked = [(options.journal, options.journal_seconds, options.journal_keep_days) for options in served]
    assert asked == [(None, 60, 0), (Path("j"), 5, 7), (Path("k"), 9, 1), (Path("v"), 60, 0)]
    assert run(["serve", "--journal-seconds", "0"]) == 2
    assert run(["serve", "--journal-keep-days", "-1"]) == 2
    assert "--journal-seconds must be between 1 and 3600, not 0." in capsys.readouterr().err


def test_the_copies_of_a_publish_are_an_option(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings: 1,000 messages to 100 subscriptions unless told otherwise; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--publish-copies-max", "2000"]) == 0
    assert run(["serve", "--config", config(tmp_path, PublishCopiesMax=1_000_000)]) == 0
    assert [options.publish_copies_max for options in served] == [100_000, 2_000, 1_000_000]
    assert run(["serve", "--publish-copies-max", "1999"]) == 2
    assert "--publish-copies-max must be between 2000 and 10000000, not 1999." in capsys.readouterr().err


def test_what_may_be_staged_and_for_how_long_are_options(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings: 8 GiB and 24 hours unless told otherwise; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--staging-bytes-max", "100000000", "--staging-hours", "48"]) == 0
    assert run(["serve", "--config", config(tmp_path, StagingBytesMax=20_000_000, StagingHours=1)]) == 0
    assert [options.staging_bytes_max for options in served] == [8 << 30, 100_000_000, 20_000_000]
    assert [options.staging_hours for options in served] == [24, 48, 1]
    assert run(["serve", "--staging-bytes-max", "1000"]) == 2
    assert run(["serve", "--staging-hours", "0"]) == 2
    told = capsys.readouterr().err
    assert "--staging-bytes-max must be between 16777216 and 17592186044416, not 1000." in told
    assert "--staging-hours must be between 1 and 8760, not 0." in told


def test_the_bytes_of_an_answer_by_number_are_an_option(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings: 16 MiB unless told otherwise; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--fetch-bytes-max", "65536"]) == 0
    assert run(["serve", "--config", config(tmp_path, FetchBytesMax=1_000_000)]) == 0
    assert [options.fetch_bytes_max for options in served] == [16 << 20, 65_536, 1_000_000]
    assert run(["serve", "--fetch-bytes-max", "1000"]) == 2
    assert "--fetch-bytes-max must be between 65536 and 1073741824, not 1000." in capsys.readouterr().err


def test_the_memory_of_bulk_requests_is_an_option(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings: 32 MiB unless told otherwise; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--bulk-bytes-max", "8388608"]) == 0
    assert run(["serve", "--config", config(tmp_path, BulkBytesMax=1 << 30)]) == 0
    assert [options.bulk_bytes_max for options in served] == [32 << 20, 8 << 20, 1 << 30]
    assert run(["serve", "--bulk-bytes-max", "1000"]) == 2
    assert "--bulk-bytes-max must be between 8388608 and" in capsys.readouterr().err


def test_the_memory_of_all_connections_is_an_option(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings: 1 GiB unless told otherwise; bounds are told."""
    assert run(["serve"]) == 0
    assert run(["serve", "--connections-bytes-max", "67108864"]) == 0
    assert run(["serve", "--config", config(tmp_path, ConnectionsBytesMax=1 << 31)]) == 0
    assert [options.connections_bytes_max for options in served] == [1 << 30, 64 << 20, 1 << 31]
    assert run(["serve", "--connections-bytes-max", "1000"]) == 2
    assert "--connections-bytes-max must be between 67108864 and" in capsys.readouterr().err
