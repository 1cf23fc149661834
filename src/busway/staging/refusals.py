"""What a writer is told that staging alone knows."""

from typing import Final

BEHIND: Final = "behind"
FORGOTTEN: Final = "forgotten"
GAP: Final = "gap"
GONE: Final = "gone"
CHANGED: Final = "changed"


class StagingRefused(Exception):
    """It makes no sense to repeat the request as it is. `code` is for programs, the sentence for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


class TooManyRows(Exception):
    """A part has more rows than it may have."""


class RowRefused(Exception):
    """Nothing of the part is staged, because of this row of it."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
