"""`busway resubmit`."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from busway.cli.output import print_json, progress
from busway.cli.verbs import BusTarget, CommandFailed, JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway.cli.resubmission import LetterSurvey, Resubmission
    from busway.client.messages import ServiceBusReceivedMessage

_DEAD_LETTER: Final = "/$DeadLetterQueue"
_SUBSCRIPTIONS: Final = "/subscriptions/"
_EXIT_INTERRUPTED: Final = 130
_HELP: Final = """Send dead-lettered messages again: those of a queue to it, those of a subscription to its topic.

Every subscription of that topic is offered the message again; --to QUEUE sends it elsewhere instead.
A message is sent first and then taken from the dead-letter queue, so it is never lost; if the work is cut off in
between it may be in both places, with the same message id. Where the destination detects duplicates it would drop
the old id, so the message gets one that follows from it. DeadLetterReason and DeadLetterErrorDescription are
removed (--keep-properties keeps them). Messages that the filter does not choose stay as they are.
Ctrl-C ends it after the messages at hand; run it again to go on."""


def register(app: typer.Typer) -> None:
    verb(
        app,
        "resubmit",
        "busway resubmit orders --filter \"DeadLetterReason = 'MaxDeliveryCountExceeded'\"",
        about=_HELP,
    )(resubmit)


def resubmit(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue, or TOPIC/Subscriptions/NAME.")],
    filter_text: Annotated[
        str | None,
        typer.Option("--filter", metavar="SQL", help="Only messages that this filter of a rule selects."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ENTITY", help="Another queue or topic to send them to.")
    ] = None,
    keep_properties: Annotated[
        bool, typer.Option("--keep-properties", help="Keep DeadLetterReason and DeadLetterErrorDescription.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_HELP`."""
    import asyncio

    source = without_dead_letter(entity)
    destination = to if to is not None else destination_of(source)
    chooses = chooser_of(filter_text)
    target = server.find()
    work = _Work(target, source, destination, chooses, keep_properties)
    found, moved = asyncio.run(work.survey_only() if dry_run else work.run())
    _tell(found, moved, destination, dry_run, as_json)
    if work.refused:
        raise CommandFailed(
            f"{work.refused} were refused by {destination} and stay dead-lettered; the first one because:"
            f" {work.refusal}"
        )
    if work.was_stopped:
        raise typer.Exit(_EXIT_INTERRUPTED)
    if work.is_blocked:
        raise CommandFailed(
            "Too many messages that the filter does not choose stand before the others: resubmit or purge those"
            " first, or use a wider filter."
        )


def without_dead_letter(entity: str) -> str:
    """The dead-letter queue's own path means the same."""
    is_given = entity.lower().endswith(_DEAD_LETTER.lower())
    return entity[: -len(_DEAD_LETTER)] if is_given else entity


def destination_of(source: str) -> str:
    at = source.lower().find(_SUBSCRIPTIONS)
    return source if at < 0 else source[:at]


def chooser_of(text: str | None) -> "Callable[[ServiceBusReceivedMessage], bool]":
    """A message for which the filter fails is not chosen."""
    from busway.cli.resubmission import ReceivedSubject
    from busway.rules.compiled_rule import compiled_filter
    from busway.rules.rule import FilterError, RuleSyntaxError, SqlFilter

    if text is None:
        return lambda _: True
    try:
        compiled = compiled_filter(SqlFilter(text), uuid4)
    except RuleSyntaxError as error:
        pointer = f"\n{error.pointer}" if error.pointer else ""
        raise WrongCall(f"--filter: {error.sentence}{pointer}") from error

    def chooses(message: "ServiceBusReceivedMessage") -> bool:
        try:
            return compiled.matches(ReceivedSubject(message))
        except FilterError:
            return False

    return chooses


class _Work:
    def __init__(
        self,
        target: BusTarget,
        source: str,
        destination: str,
        chooses: "Callable[[ServiceBusReceivedMessage], bool]",
        keeps_properties: bool,
    ) -> None:
        self._target = target
        self._source = source
        self._dead_letters = source + _DEAD_LETTER
        self._destination = destination
        self._chooses = chooses
        self._keeps_properties = keeps_properties
        self.is_blocked = False
        self.was_stopped = False
        self.refused = 0
        self.refusal = ""

    async def survey_only(self) -> "tuple[LetterSurvey, int]":
        from busway.cli.resubmission import survey
        from busway.client.service_bus_client import ServiceBusClient

        async with ServiceBusClient(self._target.connection, self._target.ca_file) as client:
            return await survey(client, self._dead_letters, self._chooses), 0

    def _drops_old_ids(self) -> bool:
        """Whether the destination detects duplicates; a key that may not ask takes no chances."""
        from busway.client.atom_entries import BadAnswer
        from busway.client.errors import ClientError

        try:
            with self._target.administration() as administration:
                known = administration.get_queue_or_topic(self._destination)
        except (ClientError, BadAnswer):
            return True
        return known.properties.get("RequiresDuplicateDetection") is not False

    async def run(self) -> "tuple[LetterSurvey, int]":
        import asyncio

        from busway.cli.resubmission import DEAD_LETTER_PROPERTIES, Resubmission, survey
        from busway.client.service_bus_client import ServiceBusClient

        async with (
            ServiceBusClient(self._target.connection, self._target.ca_file) as client,
            client.get_queue_sender(self._destination) as sender,
        ):
            found = await survey(client, self._dead_letters, self._chooses)
            without = () if self._keeps_properties else DEAD_LETTER_PROPERTIES
            source = self._source if await asyncio.to_thread(self._drops_old_ids) else None
            work = Resubmission(
                client, self._dead_letters, sender, self._chooses, without=without, source=source
            )
            with (
                _stopped_by_interrupt(work),
                progress(f"Resubmitting to {self._destination}", found.chosen) as bar,
            ):
                await work.run(found, bar.advance)
            self.was_stopped = work.is_stopping and work.moved < found.chosen
            self.is_blocked, self.refused, self.refusal = work.is_blocked, work.refused, work.refusal
            return found, work.moved


@contextlib.contextmanager
def _stopped_by_interrupt(work: "Resubmission") -> Iterator[None]:
    """The first Ctrl-C ends the work in order, the second one at once."""
    import asyncio

    loop = asyncio.get_running_loop()

    def stop() -> None:
        work.is_stopping = True
        loop.remove_signal_handler(signal.SIGINT)

    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


def _tell(found: "LetterSurvey", moved: int, destination: str, dry_run: bool, as_json: bool) -> None:
    left = found.chosen - moved
    if as_json:
        print_json(
            {
                "dead_lettered": found.seen,
                "chosen": found.chosen,
                "moved": moved,
                "left": left,
                "deferred": found.deferred,
                "to": destination,
            }
        )
        return
    if dry_run:
        typer.echo(f"Would resubmit {found.chosen} of {found.seen} dead-lettered messages to {destination}.")
    else:
        typer.echo(f"Resubmitted {moved} of {found.seen} dead-lettered messages to {destination}.")
    if left and not dry_run:
        typer.echo(f"{left} that were chosen are still there: locked by somebody else, or not reached.")
    if found.deferred:
        typer.echo(f"{found.deferred} deferred ones were left alone.")
