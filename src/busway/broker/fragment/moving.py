"""Messages that the broker itself moves: where they come from, and what takes them on (F-1). How: `forward`."""

from __future__ import annotations

from typing import Protocol

from mypy_extensions import mypyc_attr

from busway.message.message import Message
from busway.store.contract import CommitBatch


class Origin(Protocol):
    """Whoever moves messages here is told when they join a batch: they leave their old place in the same commit."""

    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        """These have joined, in this very step. Of a send that joins in parts: one part after the other."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Onward:
    """Takes what arrives in a fragment on to another entity, instead of handing it to receivers."""

    def __init__(self) -> None:
        #: Numbers of rows that are on their way.
        self.moving: set[int] = set()

    def wake(self) -> None:
        """Something may have arrived."""
        raise NotImplementedError

    def arrived(self, numbers: list[int]) -> None:
        """Rows have come with numbers they had before: dead letters, in any order."""
        raise NotImplementedError

    def stop(self) -> None:
        """The fragment is out of use."""
        raise NotImplementedError
