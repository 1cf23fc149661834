"""What was lost, double or stuck (A1–A8, A10 of the review), brought back one by one."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

LOST: Final = (
    Fault(
        "ids before their messages",
        "A1: an id joins with the rows it stands for, or not at all",
        "busway/broker/fragment/duplicates.py",
        """        run.ids = new_ids or None
""",
        """        self.remember(fragment.write(), new_ids)
""",
        ("tests/unit/broker/test_duplicates_under_change.py",),
    ),
    Fault(
        "rows on their way are served at home",
        "A2: what may have arrived elsewhere is held back",
        "busway/broker/forward/transfers.py",
        """        if fragment_id in self._under_way or fragment_id in self._unknown or fragment_id in self._arrived:
""",
        """        if fragment_id in self._unknown or fragment_id in self._arrived:
""",
        ("tests/unit/broker/test_forwarding_removed.py",),
    ),
    Fault(
        "rows of unknown fate are served",
        "A2: also when nobody knows the outcome of their commit",
        "busway/broker/forward/transfers.py",
        """                self._unknown.setdefault(departure.fragment_id, {})[number] = (name, where)
""",
        """                self._unknown.get(departure.fragment_id, {})[number] = (name, where)
""",
        ("tests/unit/broker/test_forwarding_removed.py",),
    ),
    Fault(
        "what nobody took is gone",
        "A3: messages deleted for a receiver that is gone are put back, by the next fragment too",
        "busway/broker/fragment/settling.py",
        """            fragment.runtime.undelivered.add(fragment.id, messages)
            return
""",
        """            return
""",
        ("tests/unit/broker/test_consumed_under_change.py",),
    ),
    Fault(
        "one refusal ends all schedules",
        "A4: an entity that refuses stops no other",
        "busway/broker/fragment/expiry_and_schedule.py",
        """                refusing.add(key)
""",
        """                raise
""",
        ("tests/unit/broker/test_background_tasks.py",),
    ),
    Fault(
        "no alarm after a failure",
        "A4: the alarm is always set again",
        "busway/broker/fragment/expiry_and_schedule.py",
        """            if not is_over:
                self.look_in(_RETRY_MS)
""",
        "",
        ("tests/unit/broker/test_background_tasks.py::test_an_activator_survives_what_nobody_expects",),
    ),
    Fault(
        "two servers on one file",
        "A5: a store belongs to one server",
        "busway/store/sqlite/companion_files.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ("tests/unit/store/test_store_lock.py",),
    ),
    Fault(
        "a file with two names",
        "A5: hard links are noticed",
        "busway/store/sqlite/companion_files.py",
        """            self._lock(descriptor)
            _check_names(file)
""",
        """            self._lock(descriptor)
""",
        ("tests/unit/store/test_store_lock.py",),
    ),
    Fault(
        "a timer outlives the upgrade",
        "A6: AMQP over WebSocket has no ten seconds",
        "busway/gateway/http/protocol.py",
        """        self._is_upgraded = True
        self._stop_head_timer()
""",
        """        self._is_upgraded = True
""",
        (
            "tests/unit/gateway/test_websocket_patience.py::test_a_connection_that_asked_before_its_upgrade_outlives_every_timer",
        ),
    ),
    Fault(
        "an upgraded connection starts a timer",
        "A6: each died ten seconds after it was opened",
        "busway/gateway/http/protocol.py",
        """        if self._is_upgraded:
            return
""",
        "",
        (
            "tests/unit/gateway/test_websocket_patience.py::test_a_connection_that_asked_before_its_upgrade_outlives_every_timer",
        ),
    ),
    Fault(
        "an upgraded connection stays an idler",
        "A6: the 1,001st ended the first",
        "busway/gateway/http/protocol.py",
        """        self._idlers.discard(self)
        super().handle_websocket_upgrade(event)
""",
        """        super().handle_websocket_upgrade(event)
""",
        (
            "tests/unit/gateway/test_websocket_patience.py::test_a_connection_that_asked_before_its_upgrade_outlives_every_timer",
        ),
    ),
    Fault(
        "schedules follow the shown time",
        "A7: a clock that was ahead once makes nothing active",
        "busway/broker/fragment/sent_run.py",
        """            if message.scheduled_at_ms > wall_ms:
                scheduled.append(message)
""",
        """            if message.scheduled_at_ms > enqueued_ms:
                scheduled.append(message)
""",
        ("tests/unit/broker/test_clock_ahead.py::test_a_schedule_follows_the_wall_clock_after_it_was_ahead",),
    ),
    Fault(
        "times to live follow the shown time",
        "A7: sixty seconds are sixty seconds",
        "busway/broker/fragment/sent_run.py",
        """                expires_ms = expiry_ms(wall_ms, ttl_ms)
            message.expires_at_ms = expires_ms
""",
        """                expires_ms = expiry_ms(enqueued_ms, ttl_ms)
            message.expires_at_ms = expires_ms
""",
        (
            "tests/unit/broker/test_clock_ahead.py::test_a_time_to_live_follows_the_wall_clock_after_it_was_ahead",
        ),
    ),
    Fault(
        "a step of the clock is noticed late",
        "A7: a step forward is noticed within a second",
        "busway/broker/fragment/expiry_and_schedule.py",
        """_LOOK_EVERY_S: Final = 1.0
""",
        """_LOOK_EVERY_S: Final = 300.0
""",
        ("tests/unit/broker/test_clock_ahead.py::test_a_step_forward_is_noticed_within_a_second",),
    ),
    Fault(
        "a run and its parts hold one another",
        "A8: no message waits for the cyclic collector",
        "busway/broker/entity/group_shares.py",
        """        self._parts.clear()
        self.part_over()
""",
        """        self.part_over()
""",
        ("tests/unit/broker/test_no_cycles.py",),
    ),
    Fault(
        "a batch and whom it told hold one another",
        "A8: no message waits for the cyclic collector",
        "busway/store/commit_cycle.py",
        """    callbacks.clear()
""",
        "",
        ("tests/unit/broker/test_no_cycles.py",),
    ),
    Fault(
        "every store waits for the home",
        "A10: a hanging home keeps no other store out",
        "busway/broker/namespace/stores.py",
        """        else:
            await contents.catalogue.reload(keeper)
""",
        """        else:
            async with contents.changing:
                pass
            await contents.catalogue.reload(keeper)
""",
        ("tests/unit/broker/test_hanging_home.py",),
    ),
    Fault(
        "deleting from another's session",
        "A10: what somebody else holds is skipped",
        "busway/broker/fragment/read_requests.py",
        """        if fragment.settings.requires_session and not is_holder:
""",
        """        if fragment.settings.requires_session and session_id is None:
""",
        ("tests/unit/gateway/test_batch_delete_in_sessions.py",),
    ),
    Fault(
        "half a cancellation",
        "A10: what the other stores have deleted is scheduled again",
        "busway/broker/entity/group_requests.py",
        """            if errors:
                part.schedule_again()
            else:
""",
        """            if not errors:
""",
        ("tests/unit/broker/test_cancelling_in_parts.py",),
    ),
    Fault(
        "falling due while it is cancelled",
        "A10: what was found is kept until all is found",
        "busway/broker/entity/group_requests.py",
        """        fragment.intake.withheld.update(part.numbers())
""",
        "",
        ("tests/unit/broker/test_cancelling_in_parts.py",),
    ),
    Fault(
        "sessions are listed from the beginning",
        "A10: a large skip costs what it skips",
        "busway/broker/entity/group_requests.py",
        """            ids = fragment.sessions.ids(self._state_set_after_ms, 0, limit, self._from_id)
            self._page = (await read(fragment.settings.path, ids))[::-1]
            if not self._page:
                return None
            self._from_id = self._page[0] + "\\0"  # the first text behind it
""",
        """            skip = int(self._from_id or 0)
            ids = fragment.sessions.ids(self._state_set_after_ms, skip, limit)
            self._page = (await read(fragment.settings.path, ids))[::-1]
            if not self._page:
                return None
            self._from_id = str(skip + len(self._page))
""",
        ("tests/unit/broker/test_session_lists.py",),
    ),
    Fault(
        "a head is swept for ever",
        "A10: numbers that are no rows ring no alarm",
        "busway/broker/fragment/expiry_and_schedule.py",
        """            await fragment.store.flush()
            while after >= 0""",
        """            if fragment.horizon.committed_high < fragment.counters.last_counter:
                self._alarm.no_later_than(fragment.runtime.clock.wall_ms() + _LOOK_AGAIN_MS)
            await fragment.store.flush()
            while after >= 0""",
        (
            "tests/unit/broker/test_background_tasks.py::test_a_head_is_not_looked_at_for_ever_because_of_numbers_that_are_no_rows",
        ),
    ),
    Fault(
        "fragments of nobody stay",
        "P-60: what an unknown outcome left behind goes when the catalogue's home is back",
        "busway/broker/namespace/stores.py",
        """                if contents.catalogue.home_leads:
                    for other""",
        """                if not contents.catalogue.home_leads:
                    for other""",
        ("tests/unit/broker/test_found_by_simulation.py",),
    ),
    Fault(
        "doubts die with the process",
        "F-1: rows that may lie elsewhere are held back in the next life too",
        "busway/broker/namespace/entity_table.py",
        "        self.transfers.doubt(row.doubts)\n",
        "",
        ("tests/unit/broker/test_forwarding_doubts.py",),
    ),
    Fault(
        "rows depart while the update is written",
        "F-1: the doubt that is written with it cannot know of them",
        "busway/broker/namespace/entity_update.py",
        "            transfers.close_departures(fragment_ids)\n",
        "",
        ("tests/unit/broker/test_forwarding_doubts.py",),
    ),
    Fault(
        "a store is read while it closes",
        "M-35: numbers of the last commit of its life before are given out again",
        "busway/broker/store_keeper.py",
        """            async with self._closing:
                await self.connect()
""",
        """            await self.connect()
""",
        ("tests/unit/broker/test_found_by_simulation.py",),
    ),
    Fault(
        "a bound of nothing stops TLS",
        "Bulk: an answer comes over TLS as it comes without",
        "busway/gateway/http/protocol.py",
        " or transport.get_write_buffer_size() == 0:",
        ":",
        ("tests/server/test_https_messages.py",),
    ),
    Fault(
        "runs that overlap",
        "R-1: what is put back under its old numbers can be found, and its neighbours too",
        "busway/store/sqlite/message_runs.py",
        """            if not self._is_free(key, last):
""",
        """            if not self._is_free(key, last) and self._messages_min < 0:
""",
        ("tests/store_contract/test_runs.py",),
    ),
    Fault(
        "dead marks are forgotten",
        "What was settled out of a run does not come back after a restart",
        "busway/store/sqlite/message_runs.py",
        """            self._cursor.executemany(_RUN_MARKS_PUT, marks)
""",
        """            del marks
""",
        ("tests/store_contract/test_runs.py",),
    ),
)
