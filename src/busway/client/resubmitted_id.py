"""The id under which a dead letter is sent again to an entity that detects duplicates.

Such an entity remembers the ids of the originals and would drop what comes back under one of them, and with it the
message. So it gets an id of its own: the old one and the place of the dead letter. It is the same whenever the same
dead letter is sent, so that a second attempt after a crash is dropped, as it should be.
"""

import hashlib
import re
from typing import Final

_LETTERS_MAX: Final = 128
_ENDING: Final = re.compile(r"~dl-[0-9a-f]{6}-\d+$")


def resubmitted_id(original: object, source: str, number: int) -> str:
    """`source`: the queue or subscription whose dead letter it is; `number`: its sequence number there."""
    place = hashlib.sha256(source.lower().encode()).hexdigest()[:6]
    ending = f"~dl-{place}-{number}"
    plain = "" if original is None else _ENDING.sub("", str(original))
    return plain[: _LETTERS_MAX - len(ending)] + ending
