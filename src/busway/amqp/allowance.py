"""How much a peer may hold on one connection, and how much it holds now.

A server's settings may name `StrangerLimits`: they count from the first byte until the owner says that it knows the
peer (`Connection.trust`), and from then on the settings' own. What is bounded here is what a peer makes us keep:
frames and deliveries that are not finished, attaches that are not answered, and what is left of them for the life of
a link. Numbers of bytes are those on the wire.
"""

from __future__ import annotations

from busway.amqp.engine_settings import EngineSettings, StrangerLimits
from busway.amqp.performatives import Coordinator, Source, Target


class Allowance:
    """Of one connection."""

    __slots__ = (
        "_attach_bytes",
        "_attach_bytes_max",
        "_attaches_left",
        "_expected_bytes",
        "_partial_bytes",
        "_partials",
        "_settings",
        "_stranger",
        "links_max",
        "sessions_max",
        "waiting_bytes",
    )

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        stranger = settings.stranger
        self._stranger: StrangerLimits | None = stranger
        self.sessions_max = settings.sessions_max if stranger is None else stranger.sessions_max
        #: Of all sessions together.
        self.links_max = settings.links_max if stranger is None else stranger.links_max
        self._attaches_left = -1 if stranger is None else stranger.attaches_max
        self._attach_bytes = 0
        self._attach_bytes_max = settings.attach_bytes_max if stranger is None else stranger.attach_bytes_max
        self._partials = 0
        self._partial_bytes = 0
        #: Of deliveries that have begun, and wait for the peer's window; sessions count it.
        self.waiting_bytes = 0
        #: By what links were accepted for.
        self._expected_bytes = settings.partial_bytes_max

    def trust(self) -> None:
        settings = self._settings
        self._stranger = None
        self.sessions_max = settings.sessions_max
        self.links_max = settings.links_max
        self._attaches_left = -1
        self._attach_bytes_max = settings.attach_bytes_max

    # --- frames and deliveries ----------------------------------------------------------------------------------

    def frame_bytes_max(self) -> int:
        """Of the next frame, once the peer has sent its open."""
        stranger = self._stranger
        if stranger is None:
            return self._settings.max_frame_size
        return min(self._settings.max_frame_size, stranger.unfinished_bytes_max - self._partial_bytes)

    def expect_deliveries(self, delivery_bytes_max: int) -> None:
        """A link was accepted whose messages may be this large: leave room for two unfinished ones."""
        self._expected_bytes = max(self._expected_bytes, 2 * delivery_bytes_max)

    def begin_partial(self) -> bool:
        """A delivery begins that takes several frames. False when there are too many already."""
        stranger = self._stranger
        if stranger is not None and self._partials >= stranger.partials_max:
            return False
        self._partials += 1
        return True

    def reserve_partial_bytes(self, size: int) -> bool:
        """For a part of a delivery and what it weighs beside its bytes. False when that is too much."""
        stranger = self._stranger
        bytes_max = self._expected_bytes if stranger is None else stranger.unfinished_bytes_max
        if self._partial_bytes + size > bytes_max:
            return False
        self._partial_bytes += size
        return True

    def end_partial(self, size: int) -> None:
        """It is complete, or dropped."""
        self._partials -= 1
        self._partial_bytes -= size

    # --- attaches -----------------------------------------------------------------------------------------------

    def count_attach(self) -> bool:
        """False when a stranger has attached so often that it is no mistake any more."""
        if self._attaches_left == 0:
            return False
        if self._attaches_left > 0:
            self._attaches_left -= 1
        return True

    def keep_attach(self, size: int) -> bool:
        """False when the attaches of this connection are more than it may have."""
        if self._attach_bytes + size > self._attach_bytes_max:
            return False
        self._attach_bytes += size
        return True

    def release_attach(self, size: int) -> None:
        self._attach_bytes -= size

    def attach_bytes(self) -> int:
        """What is kept of all links, for the curious."""
        return self._attach_bytes

    def partial_bytes(self) -> int:
        """Of unfinished deliveries."""
        return self._partial_bytes


def address_bytes(terminus: Source | Target | Coordinator | None) -> int:
    """What is kept of the end of a link that was answered."""
    if isinstance(terminus, (Source, Target)):
        address: object = terminus.address
        if isinstance(address, (str, bytes)):
            return len(address)
    return 0
