"""JSON from strangers: no member twice, no numbers that are none, no text that is no text.

Python's parser takes the last of several equal members, `NaN`, and halves of surrogate pairs; each of them is
something that a proxy in front may read differently, or that has no place in a message.
"""

import json
from typing import NoReturn

from busway.model.errors import BadArgument


def parse_json(text: bytes, what: str) -> object:
    """`what` begins the sentence of the BadArgument that is raised for everything that is not plain JSON."""
    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=_Members(what), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise BadArgument(f"{what} is not UTF-8.") from error
    except RecursionError as error:
        raise BadArgument(f"{what} is nested too deeply.") from error
    except ValueError as error:
        raise BadArgument(f"{what} is not JSON: {error}.") from error


def is_text(value: str) -> bool:
    """False when half of a surrogate pair stands alone: that has no UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Members:
    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise BadArgument(f"{self._what} has a member twice.")
        return members


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
