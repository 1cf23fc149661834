"""The part of an entity's description that a fragment works by. Frozen; an update hands over a new one."""

from dataclasses import dataclass

from busway.model.descriptions import QueueDescription, Receivable, SubscriptionDescription, TopicDescription
from busway.model.durations import FOREVER_MS
from busway.model.limits import KIB, MIB, Limits

#: Status values of an entity that is refused to senders, or to receivers (E-82).
_SEND_REFUSED = frozenset({"Disabled", "SendDisabled"})
_RECEIVE_REFUSED = frozenset({"Disabled", "ReceiveDisabled"})


@dataclass(frozen=True)
class FragmentSettings:
    path: str
    lock_duration_ms: int = 60_000
    max_delivery_count: int = 10
    default_ttl_ms: int = FOREVER_MS
    dead_letters_expired: bool = False
    requires_session: bool = False
    detects_duplicates: bool = False
    duplicate_window_ms: int = 600_000
    message_bytes_max: int = 256 * KIB
    #: Of the whole entity: this fragment and its dead-letter fragment together (S-9, D-3).
    size_bytes_max: int = 1024 * MIB
    is_dead_letter: bool = False
    #: Several fragments behind one name (P-1): keys choose among them, numbers and lock tokens tell them apart.
    is_partitioned: bool = False
    fragment_count: int = 1
    #: T-60: EnableDeadLetteringOnFilterEvaluationExceptions.
    dead_letters_rule_failures: bool = False
    #: Its messages move on by themselves: nobody receives them here (F-4, D-20).
    forwards: bool = False
    allows_send: bool = True
    allows_receive: bool = True
    #: E-111: copies, and dead letters, are no use of the entity they arrive in.
    arrivals_are_uses: bool = True

    @classmethod
    def of_queue(
        cls, description: QueueDescription, limits: Limits, *, dead_letter: bool = False
    ) -> "FragmentSettings":
        """The settings of a queue's main fragment, or of its dead-letter sub-queue, which has no sessions
        (D-4), no time to live (D-2) and no duplicate detection."""
        return cls(
            path=description.path + ("/$DeadLetterQueue" if dead_letter else ""),
            lock_duration_ms=description.lock_duration_ms,
            max_delivery_count=description.max_delivery_count,
            default_ttl_ms=FOREVER_MS if dead_letter else description.default_message_time_to_live_ms,
            dead_letters_expired=description.dead_lettering_on_message_expiration and not dead_letter,
            requires_session=description.requires_session and not dead_letter,
            detects_duplicates=description.requires_duplicate_detection and not dead_letter,
            duplicate_window_ms=description.duplicate_detection_history_time_window_ms,
            message_bytes_max=min(description.max_message_size_in_kilobytes * KIB, limits.message_bytes_max),
            size_bytes_max=description.max_size_in_megabytes * MIB,
            is_dead_letter=dead_letter,
            fragment_count=description.fragment_count,
            is_partitioned=description.enable_partitioning,
            forwards=_forwards(description, dead_letter),
            allows_send=not dead_letter and description.status not in _SEND_REFUSED,
            allows_receive=description.status not in _RECEIVE_REFUSED,
            arrivals_are_uses=not dead_letter,
        )

    @classmethod
    def of_topic(cls, description: TopicDescription, limits: Limits) -> "FragmentSettings":
        """The settings of a topic's own fragment: it takes messages in, nobody receives from it."""
        return cls(
            path=description.path,
            default_ttl_ms=description.default_message_time_to_live_ms,
            detects_duplicates=description.requires_duplicate_detection,
            duplicate_window_ms=description.duplicate_detection_history_time_window_ms,
            message_bytes_max=min(description.max_message_size_in_kilobytes * KIB, limits.message_bytes_max),
            size_bytes_max=description.max_size_in_megabytes * MIB,
            fragment_count=description.fragment_count,
            is_partitioned=description.enable_partitioning,
            allows_send=description.status not in _SEND_REFUSED,
            allows_receive=False,
        )

    @classmethod
    def of_subscription(
        cls,
        description: SubscriptionDescription,
        topic: TopicDescription,
        limits: Limits,
        *,
        dead_letter: bool = False,
    ) -> "FragmentSettings":
        """E-61, E-63: what a subscription lacks it has from its topic. Nobody sends to it (E-10); copies come
        in whatever its status is (E-83)."""
        ttl_ms = min(topic.default_message_time_to_live_ms, description.default_message_time_to_live_ms)
        return cls(
            path=description.path + ("/$DeadLetterQueue" if dead_letter else ""),
            lock_duration_ms=description.lock_duration_ms,
            max_delivery_count=description.max_delivery_count,
            default_ttl_ms=FOREVER_MS if dead_letter else ttl_ms,
            dead_letters_expired=description.dead_lettering_on_message_expiration and not dead_letter,
            requires_session=description.requires_session and not dead_letter,
            message_bytes_max=min(topic.max_message_size_in_kilobytes * KIB, limits.message_bytes_max),
            size_bytes_max=topic.max_size_in_megabytes * MIB,
            is_dead_letter=dead_letter,
            fragment_count=topic.fragment_count,
            is_partitioned=topic.enable_partitioning,
            dead_letters_rule_failures=description.dead_lettering_on_filter_evaluation_exceptions,
            forwards=_forwards(description, dead_letter),
            allows_send=False,
            allows_receive=description.status not in _RECEIVE_REFUSED,
            arrivals_are_uses=False,
        )


def _forwards(description: Receivable, dead_letter: bool) -> bool:
    target = description.forward_dead_lettered_messages_to if dead_letter else description.forward_to
    return target is not None
