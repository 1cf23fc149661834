"""Where messages come from that are moved here by the broker itself: whoever moves them is told when they join
a batch, so that they leave their old place in the same commit."""

from __future__ import annotations

from typing import Protocol

from busway.message.message import Message
from busway.store.contract import CommitBatch


class Origin(Protocol):
    def joined(self, batch: CommitBatch, messages: list[Message], store_name: str) -> None:
        """These have joined, in this very step. Of a send that joins in parts: one part after the other."""
