"""`busway send`."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, progress
from busway.cli.verbs import BusTarget, JsonOption, ServerOptions, WrongCall, verb

if TYPE_CHECKING:
    from busway.client.messages import ServiceBusMessage

#: Messages handed to the client at once, so that the bar moves and memory stays small.
_SLICE: Final = 500
PropertiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property", metavar="NAME=TEXT", help="May be repeated; NAME:=JSON for numbers and booleans."
    ),
]


def register(app: typer.Typer) -> None:
    verb(app, "send", "busway send orders --body hello --subject greeting --property amount:=12.5")(send)


def _text_option(name: str, meaning: str) -> object:
    return typer.Option(name, metavar="TEXT", help=meaning)


def send(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="The path of a queue or topic.")],
    body: Annotated[str | None, _text_option("--body", "The message's body.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The body from a file; - is standard input.")
    ] = None,
    message_id: Annotated[
        str | None, _text_option("--message-id", "Else a new one for each message.")
    ] = None,
    session_id: Annotated[
        str | None, _text_option("--session-id", "The session the message belongs to.")
    ] = None,
    partition_key: Annotated[str | None, _text_option("--partition-key", "Keeps messages together.")] = None,
    subject: Annotated[str | None, _text_option("--subject", "Also called label.")] = None,
    content_type: Annotated[
        str | None, _text_option("--content-type", "For example application/json.")
    ] = None,
    correlation_id: Annotated[str | None, _text_option("--correlation-id", "Free text.")] = None,
    reply_to: Annotated[str | None, _text_option("--reply-to", "Where answers go.")] = None,
    to: Annotated[str | None, _text_option("--to", "Free text; not interpreted.")] = None,
    time_to_live: Annotated[
        str | None, typer.Option("--time-to-live", metavar="DURATION", help="For example PT1H.")
    ] = None,
    properties: PropertiesOption = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", metavar="TIME", help="2030-01-01T08:00:00Z, or PT10M from now."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Send the message N times.")] = 1,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Send one message, or the same one many times."""
    import asyncio

    from busway.cli.output import parse_duration_ms, parse_instant_ms
    from busway.client.messages import ServiceBusMessage

    now_ms = time.time_ns() // 1_000_000
    scheduled_ms = None if schedule is None else parse_instant_ms(schedule, "--schedule", now_ms)
    message = ServiceBusMessage(
        body=body_of(body, file),
        application_properties=parse_properties(properties or []),
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        subject=subject,
        content_type=content_type,
        correlation_id=correlation_id,
        reply_to=reply_to,
        to=to,
        time_to_live_ms=None if time_to_live is None else parse_duration_ms(time_to_live, "--time-to-live"),
    )
    target = server.find()
    numbers = asyncio.run(_send(target, entity, message, count, scheduled_ms))
    if as_json:
        print_json({"sent": count, "sequence_numbers": numbers})
    elif scheduled_ms is None:
        typer.echo(f"Sent {_counted(count)} to {entity}.")
    else:
        typer.echo(f"Scheduled {_counted(count)} on {entity}: {', '.join(map(str, numbers))}.")


async def _send(
    target: BusTarget, entity: str, message: "ServiceBusMessage", count: int, scheduled_ms: int | None
) -> list[int]:
    """The sequence numbers of scheduled messages, none otherwise."""
    from busway.client.service_bus_client import ServiceBusClient

    numbers: list[int] = []
    async with (
        ServiceBusClient(target.connection, target.ca_file) as client,
        client.get_queue_sender(entity) as sender,
    ):
        with progress(f"Sending to {entity}", count) as bar:
            for start in range(0, count, _SLICE):
                copies = [message] * min(_SLICE, count - start)
                if scheduled_ms is None:
                    await sender.send_messages(copies)
                else:
                    numbers += await sender.schedule_messages(copies, scheduled_ms)
                bar.advance(len(copies))
    return numbers


def body_of(body: str | None, file: Path | None) -> bytes:
    if body is not None and file is not None:
        raise WrongCall("--body and --file exclude each other.")
    if body is not None:
        return body.encode()
    if file is None and sys.stdin.isatty():
        raise WrongCall("Give the message's body with --body TEXT, --file FILE or on standard input.")
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    return file.read_bytes()


def parse_properties(texts: list[str]) -> dict[str, object]:
    properties = dict(named_value(text, "--property") for text in texts)
    for name, value in properties.items():
        if isinstance(value, dict | list):
            raise WrongCall(f"--property: the value of {name} must be a number, a boolean, a string or null.")
    return properties


def named_value(text: str, option: str) -> tuple[str, object]:
    """`NAME=TEXT` is a string; `NAME:=JSON` is what the JSON says."""
    name, equals, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":") if is_json else name
    if not equals or not name:
        raise WrongCall(f"{option}: '{text}' is not of the form NAME=TEXT or NAME:=JSON.")
    return name, _json_value(option, name, value) if is_json else value


def _json_value(option: str, name: str, text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongCall(f"{option}: the value of {name} is not JSON: {text}") from None
    return value


def _counted(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
