"""Addresses of stores on the command line, in files and in the configuration: what is refused, and where a password
may stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from busway.cli.app import run
from busway.store.postgres.url import PASSWORD_IN_ARGUMENT
from tests.unit.cli.test_serving import Served, config
from tests.unit.cli.test_serving import served as served

SECRET = "postgresql://bus:Geheim@db1/bus?name=east"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence of a wrong call."""
    capsys.readouterr()
    assert run(["serve", *arguments]) == 2
    said = capsys.readouterr()
    lines = said.err.strip().splitlines()
    assert (said.out, len(lines)) == ("", 1), said
    assert "Geheim" not in lines[0]
    return lines[0].removeprefix("busway: ")


def test_addresses_come_from_arguments_and_files(tmp_path: Path, served: Served) -> None:
    """Start: @FILE stands for the addresses in it, one in a line, and may hold a password."""
    file = tmp_path / "stores"
    file.write_text(f"# the bus\n{SECRET}\n\n  sqlite:a  \n")
    assert run(["serve", "--store", "postgresql://db2/bus", "--store", f"@{file}"]) == 0
    [options] = served
    assert options.store_urls == ("postgresql://db2/bus", SECRET, "sqlite:a")
    assert "Geheim" not in repr(options)


def test_the_configuration_file_may_hold_a_password(tmp_path: Path, served: Served) -> None:
    """Start: whoever may read that file knows other keys, too."""
    assert run(["serve", "--config", config(tmp_path, Store=[SECRET])]) == 0
    [options] = served
    assert options.store_urls == (SECRET,)


def test_a_password_in_an_argument_is_refused(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Start: everybody on the machine can read a command line."""
    assert refused(capsys, "--store", SECRET) == PASSWORD_IN_ARGUMENT
    assert refused(capsys, "--store", "postgresql://db1/bus?password=Geheim") == PASSWORD_IN_ARGUMENT
    assert served == []


def test_a_wrong_address_is_refused_wherever_it_stands(
    tmp_path: Path, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Start: before a data directory is made or a connection is tried."""
    wrong = "postgresql://bus:Geheim@db1/bus?stores=900"
    file = tmp_path / "stores"
    file.write_text(wrong)
    said = "A PostgreSQL database holds between 1 and 64 stores: write stores=16."
    assert refused(capsys, "--store", "postgresql://db1/bus?stores=900") == said
    assert refused(capsys, "--store", f"@{file}") == said
    assert refused(capsys, "--config", config(tmp_path, Store=[wrong])) == said
    assert served == []


def test_a_file_that_holds_no_address_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Start: missing, empty, or not text; the sentence names the file."""
    file = tmp_path / "stores"
    assert (
        refused(capsys, "--store", f"@{file}")
        == f"--store @{file} cannot be read: No such file or directory."
    )
    file.write_text("# nothing yet\n")
    assert "holds no address" in refused(capsys, "--store", f"@{file}")
    file.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in refused(capsys, "--store", f"@{file}")


def test_the_same_database_is_not_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Start: nor do two databases have stores of one name; several databases have a name each."""
    first, again = "postgresql://a@db1/bus?name=east", "postgresql://b@db1/bus?name=west"
    said = refused(capsys, "--store", first, "--store", again)
    assert said == "The database at postgresql://db1/bus is given twice: one --store holds all of its stores."
    said = refused(capsys, "--store", "postgresql://db1/bus", "--store", "postgresql://db2/bus")
    assert "Other stores are called postgres-0" in said
    assert "store is the name of files" in refused(capsys, "--store", "postgresql://db1/bus?name=store")


def test_several_databases_and_files_stand_beside_each_other(served: Served) -> None:
    """Start: with a name each."""
    given = ("postgresql://db1/bus?name=east", "sqlite:a", "postgresql://db2/bus?name=west")
    assert run(["serve", *(word for address in given for word in ("--store", address))]) == 0
    assert served[0].store_urls == given
