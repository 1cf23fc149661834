"""A token handed from the command line to a browser, once.

`busway console` signs a token and leaves it here; what it puts into the browser's address is a code, which is worth
nothing after its first use or after a minute. So no key and no token is in an address, in a list of processes or in
the browser's history. Codes are kept as digests, few of them, and a wrong one tells nothing.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Final

from busway.clock import Clock, Entropy

CODE_S: Final = 60.0
CODES_MAX: Final = 64
_CODE_BYTES: Final = 24


class SignInCodes:
    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        #: Digest of the code → when it ends, what was left. Oldest first.
        self._waiting: dict[bytes, tuple[float, str]] = {}

    def leave(self, kept: str) -> str:
        """The code; the oldest one goes when there are too many."""
        self._drop_old()
        while len(self._waiting) >= CODES_MAX:
            del self._waiting[next(iter(self._waiting))]
        code = base64.urlsafe_b64encode(self._entropy.bytes(_CODE_BYTES)).decode()
        self._waiting[_digest(code)] = (self._clock.monotonic() + CODE_S, kept)
        return code

    def take(self, code: str) -> str | None:
        """What was left under it, the first time."""
        self._drop_old()
        found = self._waiting.pop(_digest(code), None)
        return None if found is None else found[1]

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        for digest in [digest for digest, (until, _) in self._waiting.items() if until <= now]:
            del self._waiting[digest]


def _digest(code: str) -> bytes:
    return sha256(code.encode()).digest()
