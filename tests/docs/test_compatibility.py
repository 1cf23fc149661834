"""Pages that are made from the code and the tests are up to date."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["compatibility.py", "settings.py"])
def test_a_generated_page_is_up_to_date_and_complete(script: str) -> None:
    """Documentation: each promised rule has a test, each option of `serve` is explained."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
