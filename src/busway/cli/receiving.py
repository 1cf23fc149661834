"""`busway receive`, `busway peek` and `busway purge`."""

import base64
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from busway.cli.output import JsonList, print_json, progress, shown
from busway.cli.verbs import BusTarget, JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway.client.messages import ServiceBusReceivedMessage
    from busway.client.receiver import ServiceBusReceiver

Result = TypeVar("Result")

DEAD_LETTER: Final = "$DeadLetterQueue"
MODES: Final = ("receive-and-delete", "peek-lock")
SETTLEMENTS: Final = ("complete", "abandon", "defer", "dead-letter", "none")
#: Asked for at once; the rest of --count follows.
_SLICE: Final = 100
_PURGE_SLICE: Final = 500
#: Once messages have come, how long the next ones may take before it is said that there are no more.
_NEXT_SLICE_WAIT_S: Final = 0.5

EntityArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="A queue, or TOPIC/Subscriptions/NAME; with /$DeadLetterQueue behind it what was dead-lettered.",
    ),
]
DeadLetterOption = Annotated[bool, typer.Option("--dead-letter", help="The entity's dead-letter queue.")]
SessionOption = Annotated[str | None, typer.Option("--session-id", metavar="TEXT", help="Only this session.")]


def register(app: typer.Typer) -> None:
    verb(app, "receive", "busway receive orders --count 10 --mode peek-lock --json")(receive)
    verb(app, "peek", "busway peek orders --dead-letter --count 5")(peek)
    verb(app, "purge", "busway purge orders --dead-letter --yes")(purge)


def receive(
    entity: EntityArgument,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="At most so many.")] = 1,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="For the first message.")
    ] = 5.0,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", metavar="MODE", help="receive-and-delete, or peek-lock: locked, printed, then settled."
        ),
    ] = MODES[0],
    settle: Annotated[
        str,
        typer.Option(
            "--settle",
            metavar="HOW",
            help="With peek-lock: complete, abandon, defer, dead-letter, or none to let the lock run out.",
        ),
    ] = SETTLEMENTS[0],
    session_id: SessionOption = None,
    next_session: Annotated[
        bool, typer.Option("--next-session", help="Accept the next session that has messages.")
    ] = False,
    dead_letter: DeadLetterOption = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Receive messages and print them. Nothing within --wait is no error: nothing is printed."""
    _check_choice("--mode", mode, MODES)
    _check_choice("--settle", settle, SETTLEMENTS)
    if session_id is not None and next_session:
        raise WrongCall("--session-id and --next-session exclude each other.")
    target = server.find()
    session = True if next_session else session_id
    printer = _Printer(as_json)
    _run(_receive(target, _path(entity, dead_letter), count, wait, mode, settle, session, printer))
    printer.close()


def peek(
    entity: EntityArgument,
    first: Annotated[int, typer.Option("--from", metavar="NUMBER", help="The first sequence number.")] = 0,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="At most so many.")] = 10,
    session_id: SessionOption = None,
    dead_letter: DeadLetterOption = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Look at messages without taking them."""
    target = server.find()
    printer = _Printer(as_json)
    _run(_peek(target, _path(entity, dead_letter), first, count, session_id, printer))
    printer.close()


def purge(
    entity: EntityArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete.")] = False,
    dead_letter: DeadLetterOption = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Delete all active messages. Locked, deferred and scheduled ones stay."""
    path = _path(entity, dead_letter)
    if not yes:
        raise WrongCall(f"This deletes every message of {path}: say --yes if you mean it.")
    target = server.find()
    deleted = _run(_purge(target, path))
    if as_json:
        print_json({"deleted": deleted})
    else:
        typer.echo(f"Deleted {deleted} {'message' if deleted == 1 else 'messages'} of {path}.")


async def _receive(
    target: BusTarget,
    path: str,
    count: int,
    wait: float,
    mode: str,
    settle: str,
    session: str | bool | None,
    printer: "_Printer",
) -> None:
    from busway.client.errors import TimedOut
    from busway.client.service_bus_client import ServiceBusClient

    async with ServiceBusClient(target.connection, target.ca_file) as client:
        receiver = client.get_queue_receiver(path, receive_mode=mode, session_id=session, session_wait=wait)
        try:
            await receiver.open()
        except TimedOut:
            return  # no session has messages: as empty as an empty queue
        async with receiver:
            left = count
            while left > 0:
                messages = await receiver.receive_messages(min(left, _SLICE), wait)
                if not messages:
                    return
                for message in messages:
                    printer.add(message)
                    if mode == "peek-lock":
                        await _settle(receiver, message, settle)
                left -= len(messages)
                wait = min(wait, _NEXT_SLICE_WAIT_S)


async def _settle(receiver: "ServiceBusReceiver", message: "ServiceBusReceivedMessage", settle: str) -> None:
    if settle == "complete":
        await receiver.complete_message(message)
    elif settle == "abandon":
        await receiver.abandon_message(message)
    elif settle == "defer":
        await receiver.defer_message(message)
    elif settle == "dead-letter":
        await receiver.dead_letter_message(message, reason="busway receive --settle dead-letter")


async def _peek(
    target: BusTarget, path: str, first: int, count: int, session_id: str | None, printer: "_Printer"
) -> None:
    from busway.client.service_bus_client import ServiceBusClient

    async with ServiceBusClient(target.connection, target.ca_file) as client:
        management = client.get_management(path)
        left = count
        while left > 0:
            messages = await management.peek_messages(left, first, session_id)
            if not messages:
                return
            for message in messages:
                printer.add(message)
            left -= len(messages)
            first = (messages[-1].sequence_number or 0) + 1


async def _purge(target: BusTarget, path: str) -> int:
    from busway.client.service_bus_client import ServiceBusClient

    total = 0
    async with ServiceBusClient(target.connection, target.ca_file) as client:
        management = client.get_management(path)
        before_ms = time.time_ns() // 1_000_000 + 1
        with progress(f"Purging {path}", None) as bar:
            while deleted := await management.batch_delete_messages(_PURGE_SLICE, before_ms):
                total += deleted
                bar.advance(deleted)
    return total


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio

    return asyncio.run(work)


class _Printer:
    """Prints messages as they come: a JSON list for programs, bodies with a head line for people."""

    def __init__(self, as_json: bool) -> None:
        self._list = JsonList() if as_json else None

    def add(self, message: "ServiceBusReceivedMessage") -> None:
        if self._list is not None:
            self._list.add(message_as_object(message))
            return
        marks = [f"#{message.sequence_number}"]
        marks += [f"{name}={shown(value)}" for name, value in _head_marks(message) if value is not None]
        typer.echo(" ".join(marks))
        typer.echo(text_of_body(message.body))

    def close(self) -> None:
        if self._list is not None:
            self._list.close()


def message_as_object(message: "ServiceBusReceivedMessage") -> dict[str, object]:
    """What a program can use; a body that is no UTF-8 text comes as base64."""
    from busway.cli.output import format_instant

    body = message.body
    text = _utf8(body)
    shown_body: dict[str, object] = (
        {"body": text} if text is not None else {"body_base64": base64.b64encode(body).decode()}
    )
    times = {
        "enqueued_time": message.enqueued_time_ms,
        "locked_until": message.locked_until_ms,
        "scheduled_enqueue_time": message.scheduled_enqueue_time_ms,
    }
    return {
        "sequence_number": message.sequence_number,
        "message_id": _plain(message.message_id),
        **shown_body,
        "application_properties": {
            str(name): _plain(value) for name, value in message.application_properties.items()
        },
        "session_id": message.session_id,
        "partition_key": message.partition_key,
        "subject": message.subject,
        "content_type": message.content_type,
        "correlation_id": _plain(message.correlation_id),
        "reply_to": message.reply_to,
        "to": message.to,
        "time_to_live_ms": message.time_to_live_ms,
        "delivery_count": message.delivery_count,
        "state": message.state,
        **{name: None if at is None else format_instant(at) for name, at in times.items()},
        "dead_letter_reason": _plain(message.application_properties.get("DeadLetterReason")),
        "dead_letter_error_description": _plain(
            message.application_properties.get("DeadLetterErrorDescription")
        ),
    }


def _head_marks(message: "ServiceBusReceivedMessage") -> list[tuple[str, object]]:
    return [
        ("id", message.message_id),
        ("session", message.session_id),
        ("subject", message.subject),
        ("state", None if message.state == "active" else message.state),
        ("reason", message.application_properties.get("DeadLetterReason")),
    ]


def _plain(value: object) -> object:
    """An AMQP value as JSON can say it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, UUID) else repr(value)


def text_of_body(body: bytes) -> str:
    """Bodies come from strangers: only line ends and tabs of the control characters reach the terminal."""
    text = _utf8(body)
    if text is None:
        return f"({len(body)} bytes that are not text; --json shows them)"
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _utf8(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _path(entity: str, dead_letter: bool) -> str:
    if dead_letter and not entity.lower().endswith("/" + DEAD_LETTER.lower()):
        return f"{entity}/{DEAD_LETTER}"
    return entity


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise WrongCall(f"{option} is one of {', '.join(choices)}; '{value}' is not.")
