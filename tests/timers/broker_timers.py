"""Timers of the engine, the broker and the streams: most of them lie in one heap, which the ticker drives."""

from __future__ import annotations

from typing import Final

from tests.timers.scan import LOOKS, RINGS, WAITS
from tests.timers.timer import Timer, timers_in

BROKER_TIMERS: Final = (
    *timers_in(
        "busway/amqp/connection.py",
        Timer(
            "Connection._check_patience",
            LOOKS,
            "a peer's handshake, its silence, its answer to our close",
            "the peer's open, its next frame, its close",
            "the connection is closed, with a sentence if there was an open",
            "unit/amqp/test_connection::test_silence_of_240_seconds_ends_everything_with_the_sentence",
            longest_s=240,
            ends_connections=True,
        ),
        Timer(
            "Connection.tick",
            LOOKS,
            "a heartbeat before half of the peer's patience is over",
            "the end of the connection",
            "an empty frame",
            "unit/amqp/test_connection::test_heartbeats_leave_at_less_than_half_of_the_peers_patience",
        ),
    ),
    *timers_in(
        "busway/broker/namespace/auto_delete.py",
        Timer(
            "AutoDelete._arm",
            RINGS,
            "the entity that may be idle for long enough first",
            "a deletion or update of that one",
            "it is deleted, or looked at again later",
            "unit/broker/test_auto_delete::test_an_unused_queue_is_deleted_and_its_links_are_told",
        ),
        Timer(
            "AutoDelete._look_at_slice",
            RINGS,
            "the next slice of a look around",
            "the next look around",
            "who is in use is noted",
            "unit/broker/test_many_mortals::test_a_look_around_is_cut_into_slices",
        ),
    ),
    *timers_in(
        "busway/broker/bulk/claims.py",
        Timer(
            "OpenClaim.is_over",
            LOOKS,
            "the locks of a claim that was taken and never held",
            "holding it, renewing it",
            "the claim is forgotten",
            "unit/broker/test_claims::test_the_locks_of_a_claim_that_is_never_held_end_by_themselves",
        ),
        Timer(
            "_happens",
            WAITS,
            "a taking waits for its first message, and a little for more",
            "news, or whoever asked going",
            "what is there is taken",
            "unit/broker/test_claims::test_a_taking_waits_for_the_first_message",
            longest_s=30,
        ),
    ),
    *timers_in(
        "busway/broker/entity/distribution.py",
        Timer(
            "Distribution.used_bytes",
            LOOKS,
            "how old the sum of all copies is",
            "",
            "it is taken anew by whoever publishes",
            "unit/broker/test_topics::test_the_size_of_a_topic_is_that_of_all_copies",
            longest_s=0.25,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/duplicates.py",
        Timer(
            "DuplicateFilter._arm",
            RINGS,
            "the oldest ids leave their window",
            "the end of the fragment",
            "a slice of them is deleted",
            "unit/broker/test_duplicates::test_old_ids_are_forgotten_in_slices",
        ),
    ),
    *timers_in(
        "busway/broker/namespace/entity_table.py",
        Timer(
            "EntityTable._undelivered_arrived",
            RINGS,
            "messages that nobody took, in a turn of their own",
            "",
            "they are put back, or wait for their fragment",
            (
                "unit/broker/test_consumed_under_change::"
                "test_a_message_that_cannot_be_answered_after_the_update_is_put_back"
            ),
        ),
    ),
    *timers_in(
        "busway/broker/fragment/expiry_and_schedule.py",
        Timer(
            "HeadExpiry.__init__",
            RINGS,
            "the first message of a fragment that may expire",
            "the end of the fragment",
            "the expired ones at the head leave",
            "unit/broker/test_expiry::test_the_sweep_removes_what_expires_in_order",
        ),
    ),
    *timers_in(
        "busway/broker/forward/forwarding.py",
        Timer(
            "Forwarder._again_in",
            RINGS,
            "a destination that refuses or is away",
            "the end of the forwarder",
            "the rows are tried again",
            (
                "unit/broker/test_destinations_on_hold::"
                "test_a_destination_that_is_held_later_does_not_put_the_next_try_off"
            ),
            longest_s=30,
        ),
        Timer(
            "Forwarder._refused",
            LOOKS,
            "how long a destination has refused",
            "a row that it takes",
            "the rows become dead letters of their source",
            (
                "unit/broker/test_forwarding::"
                "test_a_destination_that_refuses_is_tried_for_seconds_then_the_source_dead_letters"
            ),
            longest_s=5,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/settling.py",
        Timer(
            "Settling.watch",
            RINGS,
            "the first lock that ends",
            "the end of the fragment",
            "its message is available again, a failure counted",
            "unit/broker/test_fragment::test_a_lock_ends_after_its_duration",
            longest_s=300,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/lane.py",
        Timer(
            "Lane._fill",
            RINGS,
            "a read that failed",
            "",
            "whoever waits is served, if the fragment is still in use",
            "timers/test_broker_timers::test_a_read_that_fails_is_tried_again_a_second_later",
            longest_s=1,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/locks.py",
        Timer(
            "LockTable._take_reserved",
            LOOKS,
            "locks that an open transaction has reserved",
            "the discharge",
            "they end as others do",
            "unit/broker/test_transactions::test_a_lock_that_ends_before_the_commit_makes_it_fail",
        ),
        Timer(
            "LockTable.get",
            LOOKS,
            "whether a lock is alive",
            "",
            "it is none any more",
            "unit/broker/test_locks::test_a_lock_whose_time_is_over_waits_for_its_end",
        ),
        Timer(
            "LockTable.is_reserved",
            LOOKS,
            "whether a reserved lock is alive",
            "",
            "the commit fails",
            (
                "unit/broker/test_transactions::"
                "test_a_lock_whose_time_is_over_but_was_not_collected_yet_makes_the_commit_fail_too"
            ),
        ),
        Timer(
            "LockTable.pop",
            LOOKS,
            "whether a lock may still settle",
            "",
            "it is lost",
            "unit/broker/test_locks::test_a_lock_whose_time_is_over_waits_for_its_end",
        ),
        Timer(
            "LockTable.renewable",
            LOOKS,
            "whether a lock may be renewed",
            "",
            "it is lost",
            "unit/broker/test_locks::test_a_renewed_lock_ends_at_its_new_time_only",
        ),
        Timer(
            "LockTable.take_ended",
            LOOKS,
            "which locks have ended",
            "",
            "they are given back in slices",
            "unit/broker/test_locks::test_ended_locks_come_in_slices_and_by_number",
        ),
    ),
    *timers_in(
        "busway/broker/fragment/message_sessions.py",
        Timer(
            "MessageSessions._accept_next",
            RINGS,
            "somebody waits for the next session",
            "a session, his going, the end of the entity",
            "he is told that there was none",
            "unit/broker/test_message_sessions::test_an_accept_times_out",
            longest_s=65,
        ),
        Timer(
            "MessageSessions._extend",
            RINGS,
            "the lock of a session",
            "a renewal, the end of the session",
            "its receiver loses it, what was delivered counts a failure",
            "unit/broker/test_message_sessions::test_the_end_of_the_session_lock_takes_the_session_away",
            longest_s=300,
        ),
        Timer(
            "MessageSessions.is_held",
            LOOKS,
            "whether the lock of a session is alive",
            "a renewal",
            "it is ended on the way",
            (
                "unit/broker/test_message_sessions::"
                "test_a_session_lock_whose_time_is_over_does_not_settle_before_the_timer_runs"
            ),
        ),
    ),
    *timers_in(
        "busway/broker/namespace/namespace.py",
        Timer(
            "Upkeep._look_around",
            RINGS,
            "what no event tells, once a minute",
            "the end of the ticker",
            "uses are noted, sizes counted, copies of the catalogue brought up to date",
            "unit/broker/test_auto_delete::test_a_waiting_receiver_keeps_a_queue_alive",
            longest_s=60,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/numbering.py",
        Timer(
            "Numbering._watch",
            RINGS,
            "a fragment in the reserve of its numbers may be empty",
            "the end of the fragment: the look is the last",
            "the numbers begin anew in an empty moment",
            "timers/test_broker_timers::test_a_fragment_that_is_closed_looks_at_its_numbers_no_more",
            longest_s=1,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/expiry_and_schedule.py",
        Timer(
            "StoreSweep.__init__",
            RINGS,
            "the earliest scheduled message of a store; and the first with an expiry of its own",
            "the store going out of service",
            "what is due becomes active; what has expired leaves or becomes a dead letter",
            "unit/broker/test_schedule::test_a_scheduled_message_is_not_receivable_before_its_time",
        ),
    ),
    *timers_in(
        "busway/broker/namespace/stores.py",
        Timer(
            "StoreEntry._take_over_soon",
            RINGS,
            "the home takes over rules that were decided in this store",
            "the taking over",
            "the store goes into service without it",
            "timers/test_broker_timers::test_a_store_waits_two_seconds_for_a_home_that_hangs",
            longest_s=2,
        ),
    ),
    *timers_in(
        "busway/broker/store_keeper.py",
        Timer(
            "StoreKeeper._arm",
            RINGS,
            "a store that cannot be opened",
            "its opening, an operator, the end",
            "it is tried again, less and less often",
            "unit/broker/test_namespace_stores::test_a_store_that_stays_away_is_tried_again_and_again",
            longest_s=30,
        ),
    ),
    *timers_in(
        "busway/timers.py",
        Timer(
            "Timers.at",
            RINGS,
            "all deadlines of the broker: the heap itself",
            "`cancel`",
            "the callback, once",
            "unit/broker/test_timers::test_timers_run_in_the_order_of_their_deadlines",
        ),
        Timer(
            "Timers.run",
            LOOKS,
            "what is due, when the ticker asks",
            "",
            "the callbacks, in order; one that fails stops no other for long",
            "unit/broker/test_timers::test_a_timer_that_arms_itself_for_the_past_cannot_hold_the_loop",
        ),
    ),
    *timers_in(
        "busway/broker/transaction/transactions.py",
        Timer(
            "Transaction._begin",
            RINGS,
            "a transaction that has begun",
            "its discharge, the end of its link",
            "it is rolled back and says so",
            (
                "unit/gateway/test_amqp_transactions::"
                "test_a_transaction_that_took_too_long_says_so_at_its_discharge"
            ),
            longest_s=120,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/turns.py",
        Timer(
            "TurnShare.spend",
            LOOKS,
            "how long those have worked in this turn who go on from turn to turn",
            "",
            "they go on in the next turn",
            "timers/test_broker_timers::test_a_share_of_a_turn_ends_by_the_clock_too",
            longest_s=0.008,
        ),
    ),
    *timers_in(
        "busway/broker/fragment/expiry_and_schedule.py",
        Timer(
            "WallAlarm.no_later_than",
            RINGS,
            "an alarm for a wall time",
            "`stop`",
            "it rings once, never early",
            "unit/broker/test_timers::test_an_alarm_rings_by_the_wall_clock",
        ),
        Timer(
            "WallTimers._arm",
            RINGS,
            "the look at the wall clock, at least once a second",
            "no alarm being set",
            "what is due by the wall clock rings",
            (
                "unit/broker/test_clock_ahead::"
                "test_alarms_are_exact_and_looking_at_the_clock_costs_the_same_for_any_number_of_them"
            ),
            longest_s=1,
        ),
        Timer(
            "WallTimers.at",
            RINGS,
            "all alarms of the process: the heap itself",
            "`cancel`",
            "the callback, once",
            "unit/broker/test_clock_ahead::test_a_step_forward_is_noticed_within_a_second",
        ),
    ),
    *timers_in(
        "busway/streams/capture.py",
        Timer(
            "PartitionCapture._arm",
            RINGS,
            "the next look at a partition that is captured",
            "`stop`",
            "a window that is over becomes a file",
            "unit/streams/test_capture::test_a_window_becomes_a_file_in_the_service_s_own_form",
            longest_s=60,
        ),
        Timer(
            "PartitionCapture._open",
            RINGS,
            "a destination that cannot be read",
            "`stop`",
            "it is tried again, less and less often",
            "unit/streams/test_capture::test_a_destination_that_fails_is_tried_until_it_works",
            longest_s=60,
        ),
    ),
    *timers_in(
        "busway/streams/retention.py",
        Timer(
            "Compaction._step",
            RINGS,
            "the pause between two steps",
            "the end of the process",
            "the next step",
            "unit/streams/test_compaction::test_it_pauses_between_steps",
            longest_s=0.005,
        ),
        Timer(
            "Compaction.run",
            LOOKS,
            "whether enough has come since the last time",
            "",
            "it is worth another go",
            "unit/streams/test_compaction::test_little_that_is_new_waits",
        ),
    ),
    *timers_in(
        "busway/streams/cursor.py",
        Timer(
            "Cursor._fetch_failed",
            RINGS,
            "a page that could not be read",
            "the reader's going",
            "it is read again",
            "unit/streams/test_cursor::test_a_failed_read_is_tried_again",
            longest_s=1,
        ),
    ),
    *timers_in(
        "busway/streams/retention.py",
        Timer(
            "Retention._arm",
            RINGS,
            "old chunks of a partition",
            "the end of the log",
            "those that are too old leave",
            "unit/streams/test_retention::test_a_closed_log_looks_no_more",
            longest_s=60,
        ),
    ),
    *timers_in(
        "busway/staging/publisher.py",
        Timer(
            "Publisher._pause",
            RINGS,
            "the next try to publish what an entity or a store does not take just now",
            "the loss of the store",
            "publication goes on, or pauses longer",
            "unit/staging/test_changes_meanwhile::test_a_disabled_entity_is_waited_for",
            longest_s=5,
        ),
    ),
    *timers_in(
        "busway/staging/decider.py",
        Timer(
            "Decider.published",
            RINGS,
            "a commit waits for the publication of its batch",
            "the publication",
            "the answer says that it is not over yet",
            "unit/staging/test_changes_meanwhile::test_a_commit_waits_for_publication_as_long_as_it_is_told",
            longest_s=30,
        ),
    ),
    *timers_in(
        "busway/staging/decider.py",
        Timer(
            "TimeLimits._look_later",
            RINGS,
            "the next look for batches that nobody commits and decisions that may be forgotten",
            "",
            "they are dropped",
            "unit/staging/test_changes_meanwhile::test_what_nobody_decides_goes_when_its_time_is_over",
            longest_s=60,
        ),
    ),
)
