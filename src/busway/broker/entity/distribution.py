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

What a turn of the loop has room for (`turns`) is published in it, at once. Anything larger is a `Publication`,
which goes on in the turns that follow. Everybody who comes meanwhile stands in line behind it (`topic_line`): order
is kept, and nobody else gives out numbers to copies.

A publish to many subscriptions is many rows. So that a batch does not grow without end, a full one takes no further
publish: the line waits for the next, and senders wait for their runs.

The topic's size is the size of all copies (E-56). Adding them up for every run costs too much with two thousand
subscriptions, so the sum is taken at most every quarter of a second and what was published since is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from busway.broker.entity.publication import Publication
from busway.broker.entity.topic_line import (
    TopicLine,
    WaitingActivation,
    WaitingSend,
    WaitingTransaction,
    WaitingTurn,
)
from busway.broker.fragment.intake import Intake, Preparation, Prepared
from busway.broker.fragment.message_states import MessageInput, MessageState, rule_failed, step_of
from busway.broker.fragment.sent_run import Copies, SentRun
from busway.broker.fragment.turns import HALF
from busway.message.message import Message
from busway.message.message_subject import MessageSubject, changed_copy, plain_copy
from busway.model.errors import BrokerError, NoMatchingSubscription, QuotaExceeded, ServerBusy
from busway.model.settlement import RunDone
from busway.rules.compiled_rule import Match
from busway.rules.rule import ActionError
from busway.rules.selection import CHANGED_STEPS, CHARACTERS_PER_STEP, Selection
from busway.store.contract import CommitBatch, StoreError

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment

_RECOUNT_EVERY_S: Final = 0.25
_PUBLISHED: Final = step_of(MessageState.SCHEDULED, MessageInput.PUBLISHED)
#: A batch that holds this many rows takes no further publish; what comes waits for the next one, which holds the
#: senders back.
_BATCH_ROWS_MAX: Final = 10_000
#: Rules that walk over texts are asked at once when they walk over no more characters than this, at most.
_CHARACTERS_AT_ONCE: Final = 50_000
#: E-53: so many messages are looked at before they are taken in, more when it is their turn.
_PREFILTERED_AT_ONCE: Final = 256


class Distribution(Intake):
    """The sending side of a topic's fragment."""

    __slots__ = (
        "_counted_at",
        "_full_batch",
        "_line",
        "_load",
        "_mains",
        "_size_of_all",
        "_used_bytes",
        "copies_max",
        "prefilters",
        "selection",
        "turns",
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
        self._load = subscription
        #: What it gave, until that is out of use.
        self._mains: dict[str, Fragment] = {}
        self._size_of_all = size_of_all
        #: E-53
        self.prefilters = prefilters
        self._used_bytes = 0
        self._counted_at = float("-inf")
        self.copies_max = fragment.runtime.limits.publish_copies_max
        self.turns = fragment.runtime.turns
        #: Whoever cannot join at once.
        self._line = TopicLine(self)
        #: A batch that takes no more; it tells us when it is over.
        self._full_batch: CommitBatch | None = None

    def used_bytes(self) -> int:
        """E-56: of all copies."""
        now = self._fragment.runtime.clock.monotonic()
        if now - self._counted_at >= _RECOUNT_EVERY_S:
            self._counted_at = now
            self._used_bytes = self._size_of_all()
        return self._used_bytes + self.pending_bytes + self.reserved_bytes()

    def _admit(self, messages: list[Message], done: RunDone, is_atomic: bool) -> SentRun:
        """E-53: with prefiltering also those are refused that nobody wants. Of many this is found out later."""
        run = super()._admit(messages, done, is_atomic)
        if self.prefilters and self._can_prefilter(run.messages):
            wall_ms = self._fragment.runtime.clock.wall_ms()
            unwanted: list[tuple[Message, BrokerError]] = [
                (message, NoMatchingSubscription())
                for message in run.messages
                if message.scheduled_at_ms <= wall_ms and not self.selection.matching(MessageSubject(message))
            ]
            self._spend(len(run.messages))
            if unwanted:
                run.refuse(unwanted)
        return run

    def _can_prefilter(self, messages: list[Message]) -> bool:
        if len(messages) > _PREFILTERED_AT_ONCE or self.turns.left <= 0:
            return False
        return self.selection.is_light and not self.walks_far(
            sum([len(message.bare) for message in messages])
        )

    def takes_slices(self) -> bool:
        return False

    def join(self, run: SentRun) -> None:
        if self._line.waits or self.turns.left <= 0 or self.is_batch_full():
            self._line.append(WaitingSend(self, run, None))
        else:
            self._publish(run)

    def is_batch_full(self) -> bool:
        """True when there is a batch that takes no more. At its end, good or bad, the line goes on."""
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
        self._line.go_on()

    def is_busy(self) -> bool:
        return not self._line.is_turn and (self._line.waits or self.is_batch_full())

    def must_wait(self, tell: Callable[[], None]) -> bool:
        if not self.is_busy():
            return False
        self._line.append(WaitingTurn(tell))
        return True

    def prepare(self, run: SentRun) -> Publication:
        """Raises ServerBusy."""
        publication = self.publication(run, must_be_whole=True)
        copies: dict[str, Copies] = {}
        count = self._copy_some(publication.due, copies)
        publication.take_over(copies, count)
        return publication

    def begin(self, preparation: Preparation, prepared: Prepared) -> None:
        """It goes on before whoever stands in line."""
        assert isinstance(preparation, Publication)
        self._line.begin(WaitingTransaction(self, preparation, prepared))

    def join_now(self, run: SentRun, preparation: Preparation | None) -> None:
        assert isinstance(preparation, Publication), "what a topic publishes is prepared"
        try:
            self.check(preparation.copies)
        except (ServerBusy, QuotaExceeded) as error:
            run.fail(error)
            return
        self.join_published(run, preparation)

    def publication(self, run: SentRun, must_be_whole: bool) -> Publication:
        wall_ms = self.wall_ms()
        due = [message for message in run.messages if message.scheduled_at_ms <= wall_ms]
        return Publication(self, due, wall_ms, is_whole=must_be_whole, must_pass=run.is_admitted, run=run)

    def _publish(self, run: SentRun) -> None:
        """Numbers of the topic for each message, copies for those that are not for later. Which these are is decided
        once; copies are made; and then, in one step, all of it joins or is refused."""
        wall_ms = self._fragment.runtime.clock.wall_ms()
        due = [message for message in run.messages if message.scheduled_at_ms <= wall_ms]
        copies: dict[str, Copies] = {}
        try:
            count = self._copy_some(due, copies)
            if count < len(due):
                publication = Publication(
                    self, due, wall_ms, is_whole=run.is_atomic, must_pass=run.is_admitted, run=run
                )
                publication.take_over(copies, count)
                self._line.begin(WaitingSend(self, run, publication))
                return
            batch = self.check(copies)
        except (ServerBusy, QuotaExceeded) as error:
            run.fail(error)
            return
        self._enter_published(batch, run, len(due), wall_ms, wall_ms)
        self._join_copies(batch, copies, run.bytes, wall_ms)
        run.join()

    def join_published(self, run: SentRun, publication: Publication) -> None:
        """What was prepared. `check` was passed in this very step."""
        batch = self._fragment.batch()
        due = publication.part()
        self._enter_published(batch, run, len(due), publication.decided_ms, publication.wall_ms)
        self._join_publication(batch, publication, run.bytes)
        run.join()

    def _enter_published(
        self, batch: CommitBatch, run: SentRun, due_count: int, decided_ms: int, wall_ms: int
    ) -> None:
        """The topic's own part, as was decided."""
        later: list[Message] = []
        if due_count < len(run.messages):
            later = [message for message in run.messages if message.scheduled_at_ms > decided_ms]
        run.enter_published(batch, later, self._next_enqueued_ms(wall_ms))

    async def activate(self, messages: list[Message]) -> int:
        """Scheduled messages that are due are distributed by the rules of this moment (S-34). Raises why nothing of
        it can happen now: then they stay where they are."""
        wall_ms = self.wall_ms()
        due = [message for message in messages if self.may_activate(message, wall_ms)]
        if not due:
            return 0
        publication = Publication(self, due, wall_ms, is_whole=False, must_pass=True)
        waits = self._line.waits
        if not waits:
            copies: dict[str, Copies] = {}
            publication.take_over(copies, self._copy_some(due, copies))
            if publication.is_ready:
                self.check(copies)
                self.join_activated(publication)
                return len(due)
        # Nobody else may take them away while they are on their way.
        numbers = [message.sequence_number for message in due]
        self.withheld.update(numbers)
        waiting = WaitingActivation(self, publication)
        try:
            if waits:
                self._line.append(waiting)
            else:
                self._line.begin(waiting)
            return await waiting.ended()
        finally:
            self.withheld.difference_update(numbers)

    def join_activated(self, publication: Publication) -> None:
        """`check` was passed in this very step."""
        fragment = self._fragment
        write = fragment.write()
        due = publication.part()
        write.remove(_PUBLISHED, due)
        fragment.touch(self._next_enqueued_ms(publication.wall_ms))
        write.join()
        self._join_publication(write.batch, publication, sum([message.size() for message in due]))

    # -- copies

    def _copy_some(self, due: list[Message], copies: dict[str, Copies]) -> int:
        """By subscription what the first messages bring for it, as many as this turn has room for. How many these
        were. Raises ServerBusy while a subscription is not there."""
        turns, selection = self.turns, self.selection
        steps = len(due) * selection.steps_max
        if steps > turns.left or steps > self.copies_max or self.prefilters:
            return self._copy_counted(due, copies)
        for message in due:
            self._copy(message, selection.matching(MessageSubject(message)), copies)
        self._spend(steps)
        return len(due)

    def _copy_counted(self, due: list[Message], copies: dict[str, Copies]) -> int:
        """The same where it is not certain that there is room for all of them."""
        turns, selection = self.turns, self.selection
        if turns.left <= 0 or not selection.is_light:
            return 0
        if len(due) * selection.copies_at_least() > self.copies_max:  # it is refused, or cut
            return 0
        count = asked = made = 0
        for message in due:
            if self.walks_far(len(message.bare)):
                break
            matches = selection.matching(MessageSubject(message))
            if not matches and self.prefilters:
                break
            asked += selection.looks + selection.walked // CHARACTERS_PER_STEP
            for match in matches:
                made += 1 + CHANGED_STEPS * (len(match.acting) + len(match.errors))
            if made > self.copies_max:  # perhaps: copies are counted elsewhere
                break
            self._copy(message, matches, copies)
            count += 1
            if asked + made >= turns.left:
                break
        self._spend(asked + made)
        return count

    def walks_far(self, length: int) -> bool:
        """Asking the rules about messages of so many bytes may mean to walk over more characters than should be
        walked over at once."""
        return self.selection.text_walks * length > _CHARACTERS_AT_ONCE

    def _spend(self, steps: int) -> None:
        turns = self.turns
        turns.left -= steps
        if turns.left < HALF:
            turns.watch()

    def _copy(self, message: Message, matches: list[Match], copies: dict[str, Copies]) -> None:
        for match in matches:
            into = copies.get(match.owner)
            if into is None:
                into = copies[match.owner] = Copies(self.subscription(match.owner))
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
                self.rule_failed(message, "RuleActionException", str(failure), into)
        for error in match.errors:
            self.rule_failed(message, "FilterException", str(error), into)

    def rule_failed(self, message: Message, reason: str, sentence: str, into: Copies) -> None:
        """T-60. A prefiltering topic never dead-letters for it (D-15)."""
        if into.main.settings.dead_letters_rule_failures and not self.prefilters:
            into.dead.append((plain_copy(message), rule_failed(reason, sentence)))

    def _join_copies(
        self, batch: CommitBatch, copies: dict[str, Copies], published_bytes: int, wall_ms: int
    ) -> None:
        """One run for each subscription; all of them are in the open batch. What copies share weighs once there.
        `check` was passed in this very step."""
        batch.bytes += published_bytes
        batch.puts_copies = True
        for into in copies.values():
            if into.messages:
                into.main.intake.keep_up(self._enqueued_high_ms)
                self._used_bytes += into.bytes
                into.main.intake.join_copies(batch, into.run(), wall_ms)
                batch.bytes += into.batch_bytes() - into.bytes  # which the run has added
            if into.dead:
                write = into.main.write(batch)
                write.put_dead_letters(into.dead)
                write.join()

    def _join_publication(self, batch: CommitBatch, publication: Publication, published_bytes: int) -> None:
        """`_join_copies` for what was prepared."""
        if not publication.staged:
            self._join_copies(batch, publication.copies, published_bytes, publication.wall_ms)
            return
        batch.bytes += published_bytes
        batch.puts_copies = True
        for staged in publication.staged:
            into = staged.copies
            if into.messages:
                self._used_bytes += into.bytes
                batch.bytes += into.batch_bytes()
                into.main.intake.join_prepared(batch, staged.run, staged.rows)
            staged.join_dead(batch)

    def check(self, copies: dict[str, Copies]) -> CommitBatch:
        """M-37: no copy without a number for it, none for a fragment that is gone. Raises ServerBusy,
        QuotaExceeded. What passes joins the batch in the same step."""
        batch = self._fragment.batch()
        for into in copies.values():
            fault = into.main.intake.copies_fault(into.count())
            if fault is not None:
                raise fault
        return batch

    # -- what a publication asks, and whoever stands in line

    def can_join(self, publication: Publication) -> bool:
        """In this very step. False when it has to go on first, since something has changed. Raises ServerBusy,
        QuotaExceeded."""
        if publication.has_lost_a_subscription():
            publication.begin_anew()
            return False
        self.check(publication.copies)
        if publication.is_current():
            return True
        publication.stage_again()
        return False

    def subscription(self, key: str) -> Fragment:
        """Where its copies go: its fragment beside this one, in the same store. Raises ServerBusy."""
        main = self._mains.get(key)
        if main is None or main.is_failed:
            main = self._mains[key] = self._load(key)
            if len(self._mains) > self.selection.owner_count():
                self._mains = {key: main for key, main in self._mains.items() if not main.is_failed}
        return main

    def is_usable(self) -> bool:
        return self._fragment.is_usable()

    def path(self) -> str:
        return self._fragment.settings.path

    def wall_ms(self) -> int:
        return self._fragment.runtime.clock.wall_ms()
