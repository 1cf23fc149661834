"""The command line as a user has it."""

import json
from typing import Any

import pytest

from busway.cli.app import run


class Shell:
    """Runs verbs as a user does, and keeps what they print."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        #: What the last verb said on standard error.
        self.told = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert run(arguments) == code, self._capture.readouterr().err
        captured = self._capture.readouterr()
        self.told = captured.err
        return captured.out if code == 0 else captured.err

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))
