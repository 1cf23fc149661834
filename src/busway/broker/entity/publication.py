"""A publish on its way: copies for each subscription, over several turns of the loop if need be (T-9, S-20).

What one publish brings for one subscription is `Copies`. A small publish joins as it is: `Intake.join_copies` goes
over its copies once. Of a large one the copies get their numbers, times and rows beforehand, some at a time
(`StagedCopies.stage`). Nothing outside of the copies changes by that, so it can be dropped at any moment; and when
all are staged, joining takes the same time however many they are. Numbers are those that follow the fragment's
last one: `is_current` tells whether that is still so when the moment has come.

Theory of operation of a publish that is too large for one turn of the loop. Three things take long: asking the
rules, making copies, and giving them numbers, times and rows. Each is a part of one generator that says from time
to time how many steps it has taken, so that whoever drives it can let others go on (`turns`). None of them changes
anything but the copies; so a publication can be dropped, or begun anew, at any moment, and nobody sees a part of
it. What joins a batch in the end joins in one step.

Meanwhile the world may change. Rules that are added, changed or removed let the matching begin anew: copies follow
from the rules of the moment at which they join, because a rule is known to count for every message behind its
beginning (`rule_changes`). After some beginnings the publish is refused, so that nobody waits for ever. A
subscription that is gone or is being updated, or a store that has failed, is noticed before the step, and refuses
all of it or has it begun anew.

Memory is bounded by how many copies one publish may make. Above that a send is refused that must be all or
nothing. Any other is cut: its first messages join by themselves, then the next ones. A message that makes too many
copies all by itself is refused when it is sent, or forwarded; one that was accepted before, and is due now, is let
through.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from busway.broker.fragment.intake import Preparation
from busway.broker.fragment.journal import OperationRow
from busway.broker.fragment.message_states import reason_in
from busway.broker.fragment.property_changes import merge_changes
from busway.broker.fragment.sent_run import Copies, PreparedRows, SentRun, expiry_ms
from busway.message.message import PLACE_ACTIVE, Message
from busway.message.message_subject import MessageSubject, changed_copy, plain_copy
from busway.model.errors import BrokerError, NoMatchingSubscription, QuotaExceeded, ServerBusy
from busway.rules.compiled_rule import Match
from busway.rules.rule import ActionError
from busway.rules.selection import CHANGED_STEPS, CHARACTERS_PER_STEP
from busway.store.contract import CommitBatch, FragmentKey

if TYPE_CHECKING:
    from busway.broker.entity.distribution import Distribution
    from busway.broker.fragment.turns import TurnShare

#: A dead letter is staged for so many steps: its properties are written anew.
_DEAD_STEPS: Final = 4


class StagedCopies:
    """They have numbers, times and rows."""

    __slots__ = (
        "_base_number",
        "_dead_at",
        "_dead_bytes",
        "_dead_puts",
        "_message_at",
        "_noted",
        "_number",
        "_wall_ms",
        "copies",
        "rows",
        "run",
    )

    def __init__(self, copies: Copies, wall_ms: int, enqueued_ms: int) -> None:
        """`enqueued_ms`: what clients are shown, if the subscription has not shown a later time."""
        main = copies.main
        self.copies = copies
        self._wall_ms = wall_ms
        self._base_number = self._number = main.counters.last_counter
        self._message_at = 0
        self._dead_at = 0
        #: Of the copies that can be received.
        self.rows = PreparedRows(main.intake.enqueued_after(enqueued_ms), main.counters.expiry_high_ms)
        self._dead_puts: list[tuple[FragmentKey, int, Message]] = []
        self._dead_bytes = 0
        self._noted: list[OperationRow] = []
        self.run = copies.run()

    def is_current(self) -> bool:
        """The numbers are still those that come next. So what is in order still is."""
        return self.copies.main.counters.last_counter == self._base_number

    def stage(self, room: int) -> int:
        """Goes on for about so many steps. How many they were; 0 when all is done."""
        copies = self.copies
        if self._message_at < len(copies.messages):
            start = self._message_at
            self._message_at = min(start + room, len(copies.messages))
            self._stage_messages(copies.messages[start : self._message_at])
            return self._message_at - start
        if self._dead_at < len(copies.dead):
            start = self._dead_at
            self._dead_at = min(start + 1 + room // _DEAD_STEPS, len(copies.dead))
            self._stage_dead(copies.dead[start : self._dead_at])
            return (self._dead_at - start) * _DEAD_STEPS
        return 0

    def _stage_messages(self, messages: list[Message]) -> None:
        """As `SentRun.enter` does, but that nothing of the fragment changes."""
        main = self.copies.main
        settings, key = main.settings, main.key
        default_ttl_ms = settings.default_ttl_ms
        default_expiry_ms = expiry_ms(self._wall_ms, default_ttl_ms)
        requires_session = settings.requires_session
        rows, number = self.rows, self._number
        enqueued_ms, puts = rows.enqueued_ms, rows.puts
        for message in messages:
            number += 1
            message.sequence_number = number
            message.enqueued_at_ms = enqueued_ms
            expires_ms = default_expiry_ms
            if 0 <= message.ttl_ms < default_ttl_ms:
                expires_ms = expiry_ms(self._wall_ms, message.ttl_ms)
            message.expires_at_ms = expires_ms
            if expires_ms >= rows.high_ms:
                rows.high_ms = expires_ms
                rows.first_in_order_ms = min(rows.first_in_order_ms, expires_ms)
            else:
                rows.expiry_entries.append((key, expires_ms, number))
                rows.first_entry_ms = min(rows.first_entry_ms, expires_ms)
            if requires_session:
                rows.session_entries.append((key, message.session_id or "", number))
            puts.append((key, PLACE_ACTIVE, message))
        self._number = rows.last_number = number

    def _stage_dead(self, dead: list[tuple[Message, dict[str, object]]]) -> None:
        """As `FragmentWrite.put_dead_letters` does, but that nothing of the fragments changes."""
        target = self.copies.main.dead_letter
        assert target is not None, "subscriptions have dead letters"
        for message, properties in dead:
            self._number += 1
            message.sequence_number = self._number
            message.enqueued_at_ms = self._wall_ms
            message.changes = merge_changes(message.changes, properties)
            size = message.size()
            self._dead_bytes += size
            self._dead_puts.append((target.key, PLACE_ACTIVE, message))
            self._noted.append(
                OperationRow(
                    self._number,
                    size,
                    message.delivery_count,
                    self._wall_ms,
                    message.session_id,
                    message.partition_key,
                    reason_in(properties),
                )
            )

    def join_dead(self, batch: CommitBatch) -> None:
        """Behind the others: their numbers are higher."""
        if self._dead_puts:
            write = self.copies.main.write(batch)
            write.put_prepared_dead_letters(self._dead_puts, self._noted, self._dead_bytes)
            write.join()


#: So many rows are staged at once.
_STEPS: Final = 64
#: What a copy costs that says that a rule has failed.
_FAILED_STEPS: Final = 3
#: Joining takes so many for each subscription, whatever it gets.
_SUBSCRIPTION_STEPS: Final = 2
#: So many copies of messages that need not stay together join at once; a batch should not grow without need.
PART_COPIES_MAX: Final = 10_000
#: A copy with bytes of its own counts once more for each so many of them.
_COUNTED_BYTES_BITS: Final = 10
#: So often it is begun again when the rules have changed meanwhile.
_BEGINNINGS_MAX: Final = 10


class Publication(Preparation):
    """See the head of this file. `due`: messages whose time has come, in order."""

    __slots__ = (
        "_at",
        "_beginnings",
        "_distribution",
        "_end",
        "_grain",
        "_is_staging",
        "_is_whole",
        "_made",
        "_must_pass",
        "_part_max",
        "_selection",
        "_start",
        "_untold",
        "_version",
        "_work",
        "copies",
        "decided_ms",
        "due",
        "refused",
        "staged",
        "wall_ms",
    )

    def __init__(
        self,
        distribution: Distribution,
        due: list[Message],
        decided_ms: int,
        *,
        is_whole: bool,
        must_pass: bool = False,
        run: SentRun | None = None,
    ) -> None:
        #: `run`: what is sent, with the messages that are for later; None for those that were scheduled before.
        super().__init__(run)
        self._distribution = distribution
        self._selection = distribution.selection
        self._version = distribution.selection.version
        self.due = due
        #: When it was decided that they are.
        self.decided_ms = decided_ms
        #: All of them or none; else the first ones may join by themselves.
        self._is_whole = is_whole
        #: One that makes too many copies is let through, by itself.
        self._must_pass = must_pass
        copies_max = distribution.copies_max
        self._part_max = copies_max + 1 if is_whole else min(PART_COPIES_MAX, copies_max)
        #: Messages from here on are not copied yet; of the present part the first, and where it ends at the latest.
        self._at = self._start = 0
        self._end = len(due)
        #: Copies, counted as said above.
        self._made = 0
        self.copies: dict[str, Copies] = {}
        #: The same with their rows; none when that is not needed.
        self.staged: list[StagedCopies] = []
        #: By place in `due`.
        self.refused: dict[int, BrokerError] = {}
        #: The copies' own time.
        self.wall_ms = decided_ms
        self._is_staging = False
        self._beginnings = 1
        #: Steps that whoever drives it was not told of yet, and how many these may become.
        self._untold = 0
        self._grain = distribution.turns.grain
        self._work: Generator[int, None, None] = self._steps()

    def take_over(self, copies: dict[str, Copies], count: int) -> None:
        """The first messages were copied already. When these were all it is ready: joining them needs no more."""
        self.copies = copies
        self._at = count
        for into in copies.values():
            self._made += into.count() + (into.bytes - into.shared_bytes >> _COUNTED_BYTES_BITS)
        self.is_ready = count == len(self.due)

    # -- one part after the other

    def part(self) -> list[Message]:
        """The messages of the present part, without those that are refused."""
        return [self.due[at] for at in range(self._start, self._at) if at not in self.refused]

    def part_refused(self) -> list[tuple[Message, BrokerError]]:
        return [(self.due[at], self.refused[at]) for at in range(self._start, self._at) if at in self.refused]

    def next_message(self) -> Message | None:
        """The first of the next part; None when there is none."""
        return self.due[self._at] if self._at < len(self.due) else None

    def begin_next_part(self) -> None:
        self._start, self._end = self._at, len(self.due)
        self._beginnings = 1
        self._begin()

    def advance(self, share: TurnShare) -> bool:
        """Goes on for as long as there is room. True when the present part can join, in this very step. Raises why
        nothing of it can."""
        distribution = self._distribution
        if not distribution.is_usable():
            raise ServerBusy.without(f"'{distribution.path()}'")
        if self._selection is not distribution.selection or self._version != self._selection.version:
            self.begin_anew()
        while True:
            for steps in self._work:
                if share.spend(steps):
                    return False
            if self._is_staging:
                break
            if self._made <= share.left:  # joining them as they are is no more work than that
                self.wall_ms = max(self.decided_ms, distribution.wall_ms())
                share.spend(self._made)
                break
            self._is_staging = True
            self._work = self._staging()
        self.is_ready = True
        return True

    def begin_anew(self) -> None:
        """What it was made by has changed. Raises ServerBusy when that never ends."""
        self._beginnings += 1
        if self._beginnings > _BEGINNINGS_MAX:
            raise ServerBusy(
                f"The rules of '{self._distribution.path()}' are being changed again and again. Please try again."
            )
        self._selection = self._distribution.selection
        self._version = self._selection.version
        self._part_max = self._part_max if self._is_whole else max(1, self._part_max // 4)
        self._end = len(self.due)
        self._begin()

    def _begin(self) -> None:
        self._at = self._start
        self._forget()
        for at in [at for at in self.refused if at >= self._start]:
            del self.refused[at]
        self._work = self._steps()
        self._is_staging = self.is_ready = False

    def _forget(self) -> None:
        self.copies = {}
        self.staged = []
        self._made = 0

    def stage_again(self) -> None:
        """Somebody else has taken the numbers."""
        self._work = self._staging()
        self._is_staging, self.is_ready = True, False

    def is_current(self) -> bool:
        """What was staged can still join."""
        return all(staged.is_current() for staged in self.staged)

    def has_lost_a_subscription(self) -> bool:
        """One of them was unloaded, because it is gone or changed; another fragment may stand for it."""
        return any(into.main.is_failed for into in self.copies.values())

    # -- the work

    def _steps(self) -> Generator[int, None, None]:
        if self._is_whole and self._at == 0:
            self._check_certain()
        while self._at < self._end and self._made < self._part_max:
            made_before = self._made
            yield from self._copy(self.due[self._at])
            if self._untold >= self._grain:
                yield self._tell()
            if self._made > self._distribution.copies_max:
                self._cut(made_before)
            else:
                self._at += 1
        if self._untold:
            yield self._tell()

    def _check_certain(self) -> None:
        """It is refused at once where it must be in the end."""
        least = len(self.due) * self._selection.copies_at_least()
        if least > self._distribution.copies_max:
            raise self._too_many(len(self.due))

    def _cut(self, made_before: int) -> None:
        """The message at hand makes more copies than there is room for."""
        if self._is_whole:
            raise self._too_many(len(self.due))
        if made_before > 0:  # those before it join without it, and it begins the next part
            self._end, self._at = self._at, self._start
            self._forget()
        elif self._must_pass:
            self._at += 1
            self._end = self._at
        else:
            self.refused[self._at] = self._too_many(1)
            self._at += 1
            self._forget()

    def _too_many(self, message_count: int) -> QuotaExceeded:
        messages = "1 message" if message_count == 1 else f"{message_count} messages"
        distribution = self._distribution
        return QuotaExceeded(
            f"Publishing {messages} at once to the {self._selection.owner_count()} subscriptions of"
            f" '{distribution.path()}' makes more than {distribution.copies_max} copies, which is the most that one"
            " publish may make."
        )

    def _copy(self, message: Message) -> Generator[int, None, None]:
        """Stops early when there are too many."""
        if self._at in self.refused:
            return
        copies_max = self._distribution.copies_max
        selection, subject = self._selection, MessageSubject(message)
        if selection.is_light and not self._distribution.walks_far(len(message.bare)):
            matches = selection.matching(subject)
            self._untold += selection.looks + selection.walked // CHARACTERS_PER_STEP
        else:
            matches = yield from selection.matching_in_steps(subject)
        if not matches and self._distribution.prefilters and not self._must_pass:
            if self._is_whole:
                raise NoMatchingSubscription
            self.refused[self._at] = NoMatchingSubscription()
        self._untold += 1 + (len(message.bare) >> _COUNTED_BYTES_BITS)
        for match in matches:
            into = self.copies.get(match.owner)
            if into is None:
                into = self.copies[match.owner] = Copies(self._distribution.subscription(match.owner))
                self._untold += _SUBSCRIPTION_STEPS
            if match.is_plain:  # T-4: one copy for all plain rules together
                into.shared_bytes += into.add(plain_copy(message))
                self._made += 1
            if match.acting or match.errors:
                yield from self._copy_changed(message, match, into)
            self._untold += 1
            if self._untold >= self._grain:
                yield self._tell()
            if self._made > copies_max and not self._must_pass:
                break

    def _tell(self) -> int:
        """The steps that were taken since it told of some."""
        steps, self._untold = self._untold, 0
        return steps

    def _copy_changed(self, message: Message, match: Match, into: Copies) -> Generator[int, None, None]:
        """T-4: one copy for each rule with an action."""
        copies_max = self._distribution.copies_max
        for rule in match.acting:
            try:
                size = into.add(changed_copy(message, rule))
                self._made += 1 + (size >> _COUNTED_BYTES_BITS)
                yield CHANGED_STEPS + (size >> _COUNTED_BYTES_BITS)
            except ActionError as failure:
                self._distribution.rule_failed(message, "RuleActionException", str(failure), into)
                self._made += 1
                yield CHANGED_STEPS + _FAILED_STEPS
            if self._made > copies_max and not self._must_pass:
                return
        for error in match.errors:
            self._distribution.rule_failed(message, "FilterException", str(error), into)
            self._made += 1
            yield _FAILED_STEPS

    def _staging(self) -> Generator[int, None, None]:
        self.wall_ms = self._distribution.wall_ms()
        enqueued_ms = self._distribution.enqueued_after(self.wall_ms)
        self.staged = []
        for into in self.copies.values():
            staged = StagedCopies(into, self.wall_ms, enqueued_ms)
            self.staged.append(staged)
            steps = staged.stage(_STEPS)
            while steps > 0:
                yield steps
                steps = staged.stage(_STEPS)
            yield _SUBSCRIPTION_STEPS
