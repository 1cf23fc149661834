"""Every limit of the bus as a number with its unit (rules L-*, L-22: all are configuration). Tests lower them."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Limits:
    """Defaults of `sku` Standard."""

    sku: str = "Standard"
    entities_max: int = 10_000  # L-1
    partitioned_entities_max: int = 100  # L-2, P-11
    partition_count: int = 16  # P-9: fragments of a partitioned entity
    namespace_partitions: int = 0  # C-1: not 0: every entity has so many fragments
    namespace_bytes_max: int = 400 * 1024 * MIB  # L-4
    message_bytes_max: int = 256 * KIB  # L-5
    property_bytes_max: int = 32 * KIB  # L-6
    header_bytes_max: int = 64 * KIB  # L-7
    key_characters_max: int = 128  # L-8
    subscriptions_per_topic_max: int = 2_000  # L-9
    sql_filters_per_topic_max: int = 2_000  # E-72
    correlation_filters_per_topic_max: int = 100_000  # E-72
    authorization_rules_max: int = 12  # L-10
    connections_max: int = 5_000  # L-11
    receivers_per_entity_max: int = 5_000  # L-12
    transaction_messages_max: int = 100  # L-13
    transaction_s: float = 120.0  # TX-6
    session_states_max: int = 1_000_000  # L-14
    peek_messages_max: int = 250  # L-15
    peek_bytes_max: int = 256 * KIB
    batch_delete_messages_max: int = 500  # L-16
    fetch_bytes_max: int = 16 * MIB  # messages of one answer to a receive by sequence number
    forwarding_hops_max: int = 4  # L-17
    tokens_per_connection_max: int = 1_000  # L-18
    user_metadata_characters_max: int = 1_024  # L-19
    path_characters_max: int = 260  # E-2
    name_characters_max: int = 50  # E-3: of subscriptions and rules
    partitions_per_hub_max: int = 32  # H-2
    groups_per_hub_max: int = 20  # H-5
    event_bytes_max: int = MIB  # H-14: one publication, event or batch
    readers_per_group_max: int = 5  # H-23: of one partition, without epochs
    # Our own bounds on memory.
    locks_per_fragment_max: int = 100_000
    window_bytes_max: int = 64 * MIB  # all ready windows of a process together
    window_messages_max: int = 4_096  # one ready window
    tail_bytes_max: int = MIB  # the newest chunks of one log that readers follow
    tails_bytes_max: int = 64 * MIB  # all of these together
    producers_per_log_max: int = 10_000  # H-18: idempotent ones that a log remembers
    returned_numbers_max: int = 10_000  # then the window rewinds instead of remembering single numbers
    transactions_per_connection_max: int = 1_000
    transaction_bytes_per_connection_max: int = 32 * MIB  # TX-24: a full transaction, and some more
    transaction_settlements_max: int = 5_000
    publish_copies_max: int = 100_000  # that one publish makes: 1,000 messages to 100 subscriptions
    staging_bytes_max: int = 8 * 1024 * MIB  # of all batches that are staged and not decided
    staging_s: float = 24 * 3600.0  # then what nobody has decided is dropped
    sweep_rows_max: int = 1_000  # rows handled in one slice of background work
