"""Publishing: what a topic takes in becomes copies in its subscriptions, in one commit batch (T-1…T-10, T-60).

Theory of operation. A topic's fragment and those of its subscriptions with the same index lie in one store, and a
batch gathers without suspending, so the copies of a run join the same batch one subscription after the other:
acceptance of the send and all copies are one atomic step (T-9). Every subscription numbers its copies itself (M-39).
Plain copies share the payload bytes of the message; only a copy changed by an action has bytes of its own (T-6).

A message with a future time waits in the topic's own fragment and is distributed when it is due (S-30, S-34), by
the rules of that moment.

A publish, or an activation, goes in three steps: one look at the clock decides which messages are due; copies are
made of those, which changes nothing and may take its time; then everything that can refuse is asked, and what was
made joins the open batch. Only the last must not suspend. A refusal leaves no trace, and nobody sees a part.

A publish to many subscriptions is many rows. So that a batch does not hold the loop for long, a full one takes no
further publish: the runs wait in order for the next, and senders wait for their runs.

The topic's size is the size of all copies (E-56). Adding them up for every run would be dear with two thousand
subscriptions, so the sum is taken at most every quarter of a second and what was published since is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.commit_runs import SentRun
from busway.broker.copies import changed_copy, plain_copy
from busway.broker.dead_letter import SESSION_ID_IS_NULL, put_dead_letters, rule_failed
from busway.broker.errors import BrokerError, NoMatchingSubscription, QuotaExceeded, ServerBusy
from busway.broker.intake import Intake
from busway.broker.journal import ACTIVATE, note_messages
from busway.broker.message_subject import MessageSubject
from busway.broker.settlement import RunDone
from busway.message import ACTIVE, Message
from busway.rules.errors import ActionError
from busway.rules.match import Match
from busway.rules.selection import Selection
from busway.store.contract import PLACE_SCHEDULED, CommitBatch, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment import Fragment

_RECOUNT_EVERY_S: Final = 0.25
#: A batch is written on the loop, so one that holds this many rows takes no further publish; what comes waits for
#: the next one, which holds the senders back.
_BATCH_ROWS_MAX: Final = 10_000
#: What a copy adds to a batch besides the bytes that it shares.
_ROW_BYTES: Final = 100


class Copies:
    """What one run brings for one subscription."""

    __slots__ = ("bytes", "dead", "main", "messages", "needs_session_id", "shared_bytes")

    def __init__(self, main: Fragment) -> None:
        self.main = main
        self.needs_session_id = main.settings.requires_session
        self.messages: list[Message] = []
        #: Copies that go to the dead-letter queue at once, with the properties that say why.
        self.dead: list[tuple[Message, dict[str, object]]] = []
        #: Of `messages`; and how many of these are the published message's own, shared by all plain copies.
        self.bytes = 0
        self.shared_bytes = 0

    def add(self, copy: Message) -> int:
        """The bytes that it adds."""
        if self.needs_session_id and copy.session_id is None:
            self.dead.append((copy, SESSION_ID_IS_NULL))
            return 0
        assert copy.state == ACTIVE
        self.messages.append(copy)
        size = copy.size()
        self.bytes += size
        return size


class Distribution(Intake):
    """The sending side of a topic's fragment."""

    __slots__ = (
        "_counted_at",
        "_full_batch",
        "_size_of_all",
        "_subscription",
        "_used_bytes",
        "_waiting",
        "prefilters",
        "selection",
    )

    def __init__(
        self,
        fragment: Fragment,
        selection: Selection,
        subscription: Callable[[str], Fragment],
        size_of_all: Callable[[], int],
        prefilters: bool,
    ) -> None:
        super().__init__(fragment)
        #: The rules of all subscriptions; owners are the keys of subscriptions.
        self.selection = selection
        #: Where copies for a subscription go: its fragment beside this one, in the same store.
        self._subscription = subscription
        self._size_of_all = size_of_all
        #: E-53
        self.prefilters = prefilters
        self._used_bytes = 0
        self._counted_at = float("-inf")
        #: Runs that the full batch did not take, in order; it tells us when it is over.
        self._waiting: list[SentRun] = []
        self._full_batch: CommitBatch | None = None

    def used_bytes(self) -> int:
        """E-56: of all copies."""
        now = self._fragment.runtime.clock.monotonic()
        if now - self._counted_at >= _RECOUNT_EVERY_S:
            self._counted_at = now
            self._used_bytes = self._size_of_all()
        return self._used_bytes + self.pending_bytes

    def _admit(self, messages: list[Message], done: RunDone, is_atomic: bool) -> SentRun:
        """E-53: with prefiltering also those are refused that nobody wants."""
        run = super()._admit(messages, done, is_atomic)
        if self.prefilters:
            wall_ms = self._fragment.runtime.clock.wall_ms()
            unwanted: list[tuple[Message, BrokerError]] = [
                (message, NoMatchingSubscription())
                for message in run.messages
                if message.scheduled_at_ms <= wall_ms and not self.selection.matching(MessageSubject(message))
            ]
            if unwanted:
                run.refuse(unwanted)
        return run

    def takes_slices(self) -> bool:
        return False

    def join(self, run: SentRun) -> None:
        self._waiting.append(run)
        self.pending_bytes += run.bytes
        self._join_waiting()

    def _join_waiting(self) -> None:
        """As many as the open batch takes, in order."""
        while self._waiting and not self._is_batch_full():
            run = self._waiting.pop(0)
            self.pending_bytes -= run.bytes
            self._publish(run)

    def _is_batch_full(self) -> bool:
        """True when there is a batch that takes no more. Its end, good or bad, is when to look again."""
        try:
            batch = self._fragment.batch()
        except ServerBusy:  # the run learns it by itself
            return False
        if len(batch.puts) < _BATCH_ROWS_MAX:
            return False
        if self._full_batch is not batch:
            self._full_batch = batch
            batch.callbacks.append(self._full_batch_over)
        return True

    def _full_batch_over(self, error: StoreError | None) -> None:
        del error
        self._full_batch = None
        self._join_waiting()

    def waits_for(self) -> CommitBatch | None:
        return self._full_batch if self._is_batch_full() else None

    def join_now(self, run: SentRun) -> None:
        self._publish(run)

    def _publish(self, run: SentRun) -> None:
        """Numbers of the topic for each message, copies for those that are not for later. Which these are is decided
        once; copies are made; and then, in one step, all of it joins or is refused."""
        wall_ms = self._fragment.runtime.clock.wall_ms()
        due = [message for message in run.messages if message.scheduled_at_ms <= wall_ms]
        try:
            copies = self._copies(due)
            batch = self._fragment.batch()
            _check(copies)
        except (ServerBusy, QuotaExceeded) as error:
            run.fail(error)
            return
        self._enter_published(batch, run, len(due), wall_ms)
        self._join_copies(batch, copies, run.bytes, wall_ms)
        run.joined(batch)

    def _enter_published(self, batch: CommitBatch, run: SentRun, due_count: int, wall_ms: int) -> None:
        """The topic's own part: its numbers, and rows for what is for later."""
        fragment = self._fragment
        counters = fragment.counters
        enqueued_ms = self._next_enqueued_ms(wall_ms)
        for message in run.messages:
            counters.last_counter += 1
            message.sequence_number = counters.last_counter
            message.enqueued_at_ms = enqueued_ms
        run.last_number = counters.last_counter
        if due_count < len(run.messages):
            later = [message for message in run.messages if message.scheduled_at_ms > wall_ms]
            counters.bytes += sum(message.size() for message in later)
            self._put_scheduled(batch, later)
        run.active, run.active_bytes = [], 0
        fragment.touch(enqueued_ms)
        batch.counters[fragment.key] = counters
        if fragment.runtime.journal is not None:
            self._note(batch, run)

    def activate(self, messages: list[Message]) -> int:
        """Scheduled messages that are due are distributed by the rules of this moment (S-34). Raises why nothing of
        it can happen now: then they stay where they are."""
        fragment = self._fragment
        wall_ms = fragment.runtime.clock.wall_ms()
        due = [message for message in messages if self.may_activate(message, wall_ms)]
        if not due:
            return 0
        copies = self._copies(due)
        batch = fragment.batch()
        _check(copies)
        due_bytes = 0
        for message in due:
            due_bytes += message.size()
            batch.deletes.append((fragment.key, PLACE_SCHEDULED, message.sequence_number))
            fragment.uncount(PLACE_SCHEDULED, message.size())
        fragment.touch(self._next_enqueued_ms(wall_ms))
        batch.counters[fragment.key] = fragment.counters
        note_messages(fragment, batch, ACTIVATE, due)
        self._join_copies(batch, copies, due_bytes, wall_ms)
        return len(due)

    # -- copies

    def _copies(self, due: list[Message]) -> dict[str, Copies]:
        """By subscription what these messages bring for it. Raises ServerBusy while one of them is not there."""
        copies: dict[str, Copies] = {}
        for message in due:
            self._copy(message, copies)
        return copies

    def _copy(self, message: Message, copies: dict[str, Copies]) -> None:
        for match in self.selection.matching(MessageSubject(message)):
            into = copies.get(match.owner)
            if into is None:
                into = copies[match.owner] = Copies(self._subscription(match.owner))
            if match.is_plain:  # T-4: one copy for all plain rules together
                into.shared_bytes += into.add(plain_copy(message))
            if match.acting or match.errors:
                self._copy_changed(message, match, into)

    def _copy_changed(self, message: Message, match: Match, into: Copies) -> None:
        """T-4: one copy for each rule with an action."""
        for rule in match.acting:
            try:
                into.add(changed_copy(message, rule))
            except ActionError as failure:
                self._failed(message, "RuleActionException", str(failure), into)
        for error in match.errors:
            self._failed(message, "FilterException", str(error), into)

    def _failed(self, message: Message, reason: str, sentence: str, into: Copies) -> None:
        """T-60. A prefiltering topic never dead-letters for it (D-15)."""
        if into.main.settings.dead_letters_rule_failures and not self.prefilters:
            into.dead.append((plain_copy(message), rule_failed(reason, sentence)))

    def _join_copies(
        self, batch: CommitBatch, copies: dict[str, Copies], published_bytes: int, wall_ms: int
    ) -> None:
        """One run for each subscription; all of them are in the open batch. What copies share weighs once there.
        `_check` was passed in this very step."""
        batch.bytes += published_bytes
        for into in copies.values():
            if into.messages:
                into.main.intake.keep_up(self._enqueued_high_ms)
                count = len(into.messages)
                self._used_bytes += into.bytes
                run = SentRun(into.main, into.messages, into.bytes, count, [], _nobody_waits, True)
                into.main.intake.join_copies(batch, run, wall_ms)
                batch.bytes += count * _ROW_BYTES - into.shared_bytes
            if into.dead:
                put_dead_letters(into.main, batch, into.dead)


def _check(copies: dict[str, Copies]) -> None:
    """M-37: no copy without a number for it, none for a fragment that is gone. Raises ServerBusy, QuotaExceeded."""
    for into in copies.values():
        fault = into.main.intake.copies_fault(len(into.messages) + len(into.dead))
        if fault is not None:
            raise fault


def _nobody_waits(refused: list[tuple[int, BrokerError]]) -> None:
    """The run's own callback tells the sender; a copy that fails fails with it."""
