"""Faults against what the bus promises. Each is the smallest change that breaks it."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

PROMISES: Final = (
    Fault(
        "accept before commit",
        "S-1: accepted is told after the commit, always",
        "busway/broker/fragment/sent_run.py",
        """            self.origin.joined(batch, self.messages, self.fragment.store.name)
        batch.callbacks.append(self.committed)
""",
        """            self.origin.joined(batch, self.messages, self.fragment.store.name)
        self.committed(None)
""",
        ("tests/unit/broker/test_queue.py", "tests/unit/broker/test_intake.py"),
    ),
    Fault(
        "forget a lock at link end",
        "X-11: messages of a session that is closed come back",
        "busway/broker/fragment/settling.py",
        """        locks = self._locks.pop_session(session)
""",
        """        locks = self._locks.pop_session(session)[:0]
""",
        ("tests/unit/broker/test_message_sessions.py",),
    ),
    Fault(
        "keep the session at link end",
        "X-11: the next receiver gets it at once",
        "busway/broker/fragment/fragment.py",
        """            lane.session.close()
        else:
            self.leave(receiver)
""",
        """            self.leave(receiver)
        else:
            self.leave(receiver)
""",
        ("tests/unit/broker/test_message_sessions.py",),
    ),
    Fault(
        "skip a duplicate id",
        "S-40: what was accepted is known again, after a restart too",
        "busway/broker/fragment/write.py",
        """for message_id in ids])
""",
        """for message_id in list(ids)[1:]])
""",
        ("tests/unit/broker/test_duplicates.py",),
    ),
    Fault(
        "drop a transfer mark",
        "F-1: a crash between two stores stores nothing twice",
        "busway/broker/forward/forwarding.py",
        """            batch.transfer_marks.append(TransferMark(source.store.name, source.key, number))
""",
        """            TransferMark(source.store.name, source.key, number)
""",
        ("tests/unit/broker/test_forwarding.py", "tests/fault/test_forwarding_crashes.py"),
    ),
    Fault(
        "wrong fragment for a key",
        "P-20: what has one key lies in one fragment, in order",
        "busway/broker/entity/fragment_choice.py",
        """    if message.partition_key is not None:
        return message.partition_key
""",
        """    if message.partition_key is not None:
        return message.partition_key + str(len(message.bare))
""",
        ("tests/unit/broker/test_partitioned_sends.py",),
    ),
    Fault(
        "settle twice",
        "R-17: whoever pops a lock owns its outcome",
        "busway/broker/fragment/locks.py",
        """        lock = self.live.pop(token, None)
        if lock is None:
            return None
        session = lock.session
        if lock.deadline <= now""",
        """        lock = self.live.get(token)
        if lock is None:
            return None
        session = lock.session
        if lock.deadline <= now""",
        ("tests/unit/broker/test_locks.py", "tests/unit/broker/test_queue.py"),
    ),
    Fault(
        "settle after the lock's end",
        "R-17: a lost lock cannot settle",
        "busway/broker/fragment/locks.py",
        """        if lock.deadline <= now or (session is not None and session.deadline <= now):
            self.live[token] = lock
            return None
        if lock.place""",
        """        if session is not None and session.deadline <= now:
            self.live[token] = lock
            return None
        if lock.place""",
        ("tests/unit/broker/test_locks.py", "tests/unit/broker/test_queue.py"),
    ),
    Fault(
        "expiry without the horizon",
        "M-44: what is not durable yet cannot leave",
        "busway/broker/fragment/expiry_and_schedule.py",
        """        and message.sequence_number not in held
        and not fragment.horizon.hides(message.sequence_number)
""",
        """        and message.sequence_number not in held
""",
        ("tests/unit/broker/test_expiry_races.py", "tests/unit/broker/test_expiry.py"),
    ),
    Fault(
        "expire what is locked",
        "M-44: a message that somebody holds does not expire under him",
        "busway/broker/fragment/expiry_and_schedule.py",
        """        and message.sequence_number not in held
""",
        "",
        ("tests/unit/broker/test_expiry.py",),
    ),
    Fault(
        "session state not written",
        "X-15: it outlasts a restart",
        "busway/broker/fragment/write.py",
        """        self.batch.session_states.append((fragment.key, session_id, state, now_ms))
""",
        "",
        ("tests/unit/broker/test_message_sessions.py",),
    ),
    Fault(
        "no checksum test",
        "F4: a row that was changed by nobody is never delivered",
        "busway/store/rows.py",
        """    if check % CHECKSUM_PRIME != checksum:
        return None
    message = Message(b"", bare)
""",
        """    message = Message(b"", bare)
""",
        ("tests/unit/store/test_rows.py", "tests/store_contract/test_sqlite_damage.py"),
    ),
    Fault(
        "rights cached past expiry",
        "A-8: a token that is over opens nothing",
        "busway/model/authorization.py",
        """        if grant.expires_at_ms <= self._clock.wall_ms():
            return frozenset()
""",
        "",
        ("tests/unit/broker/test_authorization.py",),
    ),
    Fault(
        "rights of a rotated key",
        "A-10: a key that is gone opens nothing",
        "busway/model/authorization.py",
        """        if rule is None or not any(_equal(grant.key, key) for key in self._keys(grant.level, rule)):
            return frozenset()
""",
        """        if rule is None:
            return frozenset()
""",
        ("tests/unit/broker/test_authorization.py",),
    ),
    Fault(
        "show pipelines of others",
        "A-2: who may listen to one entity learns nothing about others",
        "busway/gateway/http/pipelines_route.py",
        """    return entity is None or pipeline.report.entity_keys() == {path_key(entity)}
""",
        """    return entity is None or path_key(entity) in pipeline.report.entity_keys()
""",
        ("tests/unit/gateway/test_http_pipelines.py",),
    ),
    Fault(
        "report for others",
        "A-2: who may listen to one entity says nothing about others",
        "busway/gateway/http/pipelines_route.py",
        """        await self._require_all(call, told, entity)
        known =""",
        """        known =""",
        ("tests/unit/gateway/test_http_pipelines.py",),
    ),
    Fault(
        "keep pipelines for ever",
        "what reports itself no more is forgotten",
        "busway/signals/pipelines.py",
        """            if now - oldest.came_at_s <= FORGOTTEN_AFTER_S:
""",
        """            if now:
""",
        ("tests/unit/signals/test_pipelines.py",),
    ),
    Fault(
        "report positions of another bus",
        "two buses with hubs of one name are not mistaken for each other",
        "busway_spark/watching/watched.py",
        """        if authority is not None and latest.get(BUS, authority) != authority:
            continue
""",
        "",
        ("tests/spark/test_reports.py",),
    ),
    Fault(
        "give a subscription what it got when it was published",
        "T-4: one copy for all rules without an action, also where one of them has seen the message",
        "busway_spark/pipeline/backfill/backfill_copies.py",
        """        return is_wanted & ~was_selected & ~alone, alone
""",
        """        return is_wanted & ~alone, alone
""",
        ("tests/spark/test_backfill_copies.py",),
    ),
    Fault(
        "send history out of its order",
        "Backfill: copies that an action changed stand among the others, by the numbers of their messages",
        "busway_spark/pipeline/backfill/backfill_copies.py",
        """    order = np.argsort(np.concatenate([rows, [each.row for each in others]]), kind="stable")
""",
        """    order = np.arange(len(rows) + len(others))
""",
        ("tests/spark/test_backfill_copies.py",),
    ),
    Fault(
        "take any key for that of the authority",
        "A-11: a damaged authority is found at the next start, not when a certificate has to be signed",
        "busway/gateway/certificates.py",
        """        server_context(files.ca, files.ca_key)  # which refuses a key that is not the authority's
""",
        "",
        ("tests/unit/gateway/test_certificates.py",),
    ),
    Fault(
        "a run beyond its credit",
        "[2.6.7]: a sender that takes more than its credit and the allowed overdraft is detached",
        "busway/amqp/link.py",
        """        return min(self._credit - self._overdraft_floor, self.session.quiet_room())
""",
        """        return self.session.quiet_room()
""",
        ("tests/unit/amqp/test_transfer_runs.py",),
    ),
    Fault(
        "a body of two kinds in a run",
        "S-2: what is refused alone is refused in a run",
        "busway/gateway/amqp/delivery_runs.py",
        """                if body_at >= 0:
                    return None
""",
        "",
        ("tests/unit/gateway/test_delivery_runs.py",),
    ),
    Fault(
        "the front of another message",
        "M-27: header and annotations come back with the message that they were sent with",
        "busway/gateway/amqp/delivery_runs.py",
        """            and message.head == self._head
""",
        "",
        ("tests/unit/gateway/test_delivery_runs.py",),
    ),
)
