"""What can be tried at thousands of points, in shares: one of them in `make test`, all others in `make chaos`.

Where the same points are tried in several ways, each way has another share every day, so that together they still
meet every point.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

SHARES: Final = 3


def one_of_them(daily: int, *values: Any) -> list[Any]:
    """Rows for `parametrize` that end with the number of a share; a text among the values names the row instead."""
    texts = [value for value in values if isinstance(value, str)]
    given = [value for value in values if not isinstance(value, str)]
    return [
        pytest.param(
            *given,
            share,
            id="-".join((*texts, f"share{share}")),
            marks=[] if share == daily % SHARES else pytest.mark.long,
        )
        for share in range(SHARES)
    ]
