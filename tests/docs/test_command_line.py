"""The help of every verb, found by walking the tree of verbs itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from busway.cli.app import app_for, run


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from verbs(child, (*path, name))


EVERY_VERB = list(verbs(typer.main.get_command(app_for(""))))


@pytest.mark.parametrize("verb", EVERY_VERB, ids=lambda verb: " ".join(("busway", *verb)))
def test_every_verb_explains_itself_with_an_example(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Command-line contract: `--help` ends with 0 and shows an example that begins with the verb."""
    assert run([*verb, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Example:" in printed
    assert " ".join(("busway", *verb)) in printed.partition("Example:")[2]


def test_the_tree_has_the_promised_verbs() -> None:
    """Command-line contract: what this version promises is there."""
    known = {" ".join(verb) for verb in EVERY_VERB}
    assert known >= {
        "serve", "queue create", "queue show", "queue list", "queue update", "queue delete", "send", "receive",
        "peek", "purge", "key list", "key create", "key rotate", "key delete", "stores", "stores disable",
        "stores enable", "connection-string", "exec", "claims list", "claims release",
    }  # fmt: skip
