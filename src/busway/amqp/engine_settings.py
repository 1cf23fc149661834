"""What a connection announces, and how much of everything a peer may use."""

from __future__ import annotations

from typing import Final

from busway.amqp.decode import MIN_MAX_FRAME_BYTES

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
#: In the order in which the service lists them.
MECHANISMS: Final = ("MSSBCBS", PLAIN, ANONYMOUS, "EXTERNAL")


class StrangerLimits:
    """What a peer may have that has not shown who it is. Enough to log in, with a long token too."""

    __slots__ = (
        "attach_bytes_max",
        "attaches_max",
        "links_max",
        "partials_max",
        "sessions_max",
        "unfinished_bytes_max",
    )

    def __init__(
        self,
        *,
        sessions_max: int = 4,
        links_max: int = 8,
        attaches_max: int = 64,
        attach_bytes_max: int = 16_384,
        partials_max: int = 1,
        unfinished_bytes_max: int = 65_536,
    ) -> None:
        #: Java's clients have one for tokens and one for management beside that of their entity.
        self.sessions_max = sessions_max
        self.links_max = links_max
        #: One after the other, refused ones included: each is answered.
        self.attaches_max = attaches_max
        self.attach_bytes_max = attach_bytes_max
        #: Unfinished deliveries.
        self.partials_max = partials_max
        #: Of unfinished deliveries and of the frame that is coming in.
        self.unfinished_bytes_max = unfinished_bytes_max


class EngineSettings:
    """One object serves many connections. A server offers `sasl_mechanisms`; a client chooses `sasl_mechanism` with
    its `sasl_response`. `handshake_max_s` counts from the first byte to both opens, `close_wait_s` is how long the
    answer to our close is waited for. `links_max` counts for all sessions together, and `pipelined_bytes_max` is what
    a client may send before it knows the SASL outcome."""

    def __init__(
        self,
        *,
        container_id: str = "busway",
        hostname: str | None = None,
        max_frame_size: int = 65_536,
        channel_max: int = 4_999,
        idle_timeout_ms: int | None = 120_000,
        silence_max_s: float = 240.0,
        handshake_max_s: float = 10.0,
        close_wait_s: float = 5.0,
        peer_idle_timeout_ms_min: int = 1_000,
        handle_max: int = 255,
        incoming_window: int = 5_000,
        outgoing_window: int = 65_536,
        sessions_max: int = 256,
        links_max: int = 1_024,
        unsettled_per_link_max: int = 2_048,
        unsettled_max: int = 32_768,
        overdraft_max: int = 10_000,
        delivery_bytes_max: int = 1_048_576,
        partial_bytes_max: int = 4_194_304,
        attach_bytes_max: int = 2_097_152,
        frames_per_delivery_max: int = 32_768,
        pipelined_bytes_max: int = 65_536,
        first_delivery_id: int = 1,
        first_transfer_id: int = 1,
        first_delivery_count: int = 0,
        sasl_mechanisms: tuple[str, ...] = MECHANISMS,
        sasl_mechanism: str = ANONYMOUS,
        sasl_response: bytes = b"",
        stranger: StrangerLimits | None = None,
    ) -> None:
        _check(max_frame_size, handle_max)
        self.container_id = container_id
        self.hostname = hostname
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.idle_timeout_ms = idle_timeout_ms
        self.handle_max = handle_max
        self.incoming_window = incoming_window
        self.outgoing_window = outgoing_window
        self.silence_max_s = silence_max_s  # without a complete frame; then the peer is closed
        self.handshake_max_s = handshake_max_s
        self.close_wait_s = close_wait_s
        self.peer_idle_timeout_ms_min = peer_idle_timeout_ms_min  # who wants more heartbeats is refused
        self.sessions_max = sessions_max
        self.links_max = links_max
        #: Sent and not yet settled deliveries per link, whatever its credit says (R-70).
        self.unsettled_per_link_max = unsettled_per_link_max
        self.unsettled_max = unsettled_max  # of all links together, roughly
        #: Deliveries beyond the granted credit that a receiving link bears.
        self.overdraft_max = overdraft_max
        #: Size of a delivery on links that announce no limit.
        self.delivery_bytes_max = delivery_bytes_max
        #: Bytes of unfinished deliveries per connection; accepted links with larger messages raise it.
        self.partial_bytes_max = partial_bytes_max
        #: Bytes of attaches that wait for their answer, and of what is kept of the others, per connection.
        self.attach_bytes_max = attach_bytes_max
        self.frames_per_delivery_max = frames_per_delivery_max
        self.pipelined_bytes_max = pipelined_bytes_max
        # Where our counters begin; tests start them just before they wrap.
        self.first_delivery_id = first_delivery_id
        self.first_transfer_id = first_transfer_id
        self.first_delivery_count = first_delivery_count
        self.sasl_mechanisms = sasl_mechanisms
        self.sasl_mechanism = sasl_mechanism
        self.sasl_response = sasl_response
        #: What a peer may have before `Connection.trust`; None: as much as afterwards.
        self.stranger = stranger


def _check(max_frame_size: int, handle_max: int) -> None:
    if max_frame_size < MIN_MAX_FRAME_BYTES:
        raise ValueError(f"max_frame_size must be at least {MIN_MAX_FRAME_BYTES}")
    if not 0 <= handle_max <= 255:
        raise ValueError("handle_max must lie between 0 and 255")
