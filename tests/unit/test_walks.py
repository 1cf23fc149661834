"""How far a message goes: `python scripts/walks.py` prints it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).parents[2]
#: Files of the storeys that decide, gateway and broker. These numbers only ever go down.
FILES: Final = {"sent": 11, "received and completed": 11, "published": 12}


def test_a_message_goes_through_no_more_files_than_it_does() -> None:
    """House style: whoever follows a message reads few files."""
    told = subprocess.run(
        [sys.executable, str(HOUSE / "scripts" / "walks.py")], capture_output=True, text=True, check=True
    ).stdout
    found = dict(re.findall(r"^(\w[\w ]*): .*gateway and broker (\d+)", told, re.M))
    assert found.keys() == FILES.keys()
    assert {name: int(count) for name, count in found.items() if int(count) > FILES[name]} == {}
