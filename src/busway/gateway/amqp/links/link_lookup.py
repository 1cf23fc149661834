"""What a management node may ask about the links of its connection (`associated-link-name`)."""

from typing import Protocol


class LinkLookup(Protocol):
    """Implemented by `connection.AmqpConnection`."""

    def touch_link(self, link_name: str) -> None:
        """A management request named this link: it is in use, however quiet it is itself (R-22)."""

    def session_of_link(self, link_name: str) -> str | None:
        """The Service Bus session that the receiving link of this name holds (X-4), None when it holds none."""

    def holds_session(self, path: str, session_id: str) -> bool:
        """Whether any link of this connection holds that session of that entity."""
