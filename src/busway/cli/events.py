"""`busway events send` and `busway events tail`."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, progress, shown
from busway.cli.sending import PropertiesOption, body_of, parse_properties
from busway.cli.verbs import BusTarget, JsonOption, ServerOptions, WrongCall, example, verb, verb_family

if TYPE_CHECKING:
    from busway.client.events import StartPosition
    from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage

#: Events handed to the client at once.
_SLICE: Final = 500

HubArgument = Annotated[str, typer.Argument(metavar="HUB", help="The event hub's name.")]

family = verb_family("Publish events, and watch them arrive.")


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="events", epilog=example("busway events tail clicks --from first"))


@verb(family, "send", "busway events send clicks --body '{\"page\": 7}' --key user-1")
def send(
    hub: HubArgument,
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The event's body.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The body from a file; - is standard input.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of the file or standard input is an event.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The partition key: keeps events in order.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="ID", help="This partition and no other.")
    ] = None,
    properties: PropertiesOption = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", metavar="TEXT", help="For example application/json.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Publish it N times.")] = 1,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Publish one event, the same one many times, or one for each line."""
    import asyncio

    from busway.client.messages import ServiceBusMessage

    if key is not None and partition is not None:
        raise WrongCall("--key and --partition exclude each other: a key chooses the partition.")
    text = body_of(body, file)
    bodies = text.splitlines() if lines else [text]
    made = parse_properties(properties or [])
    events = [
        ServiceBusMessage(each, made, partition_key=key, content_type=content_type) for each in bodies
    ] * count
    target = server.find()
    address = hub if partition is None else f"{hub}/Partitions/{partition}"
    asyncio.run(_send(target, address, events))
    if as_json:
        print_json({"sent": len(events)})
    else:
        typer.echo(f"Published {_counted(len(events))} to {address}.")


async def _send(target: BusTarget, address: str, events: "list[ServiceBusMessage]") -> None:
    from busway.client.service_bus_client import ServiceBusClient

    async with (
        ServiceBusClient(target.connection, target.ca_file) as client,
        client.get_queue_sender(address) as sender,
    ):
        with progress(f"Publishing to {address}", len(events)) as bar:
            for start in range(0, len(events), _SLICE):
                piece = events[start : start + _SLICE]
                await sender.send_messages(piece)
                bar.advance(len(piece))


@verb(family, "tail", "busway events tail clicks --from 2026-01-01T08:00:00Z --key user-1")
def tail(
    hub: HubArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="latest, first, a sequence number (of one --partition), or a time like 2030-01-01T08:00:00Z.",
        ),
    ] = "latest",
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="ID", help="Only this one; may be repeated. Else all of them."),
    ] = None,
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="The consumer group.")] = "$Default",
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="Only events with this partition key.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Stop after so many events.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", min=0, metavar="SECONDS", help="Stop when none came for so long; else go on."),
    ] = None,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """Print events as they arrive, from any position, until you stop it. Nothing is taken away."""
    import asyncio

    target = server.find()
    printer = _EventPrinter(as_json, key, count)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_tail(target, hub, _position(start, partition), partition, group, wait, printer))


def _position(start: str, partitions: list[str] | None) -> "StartPosition":
    from busway.cli.output import parse_instant_ms
    from busway.client.events import StartPosition

    if start == "first":
        return StartPosition.first()
    if start == "latest":
        return StartPosition.latest()
    if start.isascii() and start.isdigit():
        if partitions is None or len(partitions) != 1:
            raise WrongCall("--from: sequence numbers belong to one partition; say which with --partition.")
        return StartPosition.at_number(int(start))
    return StartPosition.since(parse_instant_ms(start, "--from", time.time_ns() // 1_000_000))


async def _tail(
    target: BusTarget,
    hub: str,
    position: "StartPosition",
    partitions: list[str] | None,
    group: str,
    wait: float | None,
    printer: "_EventPrinter",
) -> None:
    import asyncio

    from busway.client.service_bus_client import ServiceBusClient

    if partitions is None:
        with target.administration() as administration:
            known = administration.hubs.get(hub).get("PartitionIds")
        partitions = [str(each) for each in known] if isinstance(known, list) else []
    async with (
        ServiceBusClient(target.connection, target.ca_file) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        readers = [client.get_event_reader(hub, each, position, group) for each in partitions]
        for reader in readers:
            await stack.enter_async_context(reader)
        pending = {asyncio.create_task(reader.receive()): reader for reader in readers}
        try:
            while not printer.is_done:
                done, _ = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return
                for task in done:
                    reader = pending.pop(task)
                    printer.add(reader.partition_id, task.result())
                    pending[asyncio.create_task(reader.receive())] = reader
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)


class _EventPrinter:
    """One line of JSON for each event, so that a pipe can follow; or a head line and the body for people."""

    def __init__(self, as_json: bool, key: str | None, count: int | None) -> None:
        self._as_json = as_json
        self._key = key
        self._left = count

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def add(self, partition_id: str, events: "list[ServiceBusReceivedMessage]") -> None:
        for event in events:
            if self.is_done:
                return
            if self._key is not None and event.partition_key != self._key:
                continue
            self._print(partition_id, event)
            if self._left is not None:
                self._left -= 1

    def _print(self, partition_id: str, event: "ServiceBusReceivedMessage") -> None:
        import json

        from busway.cli.output import format_instant
        from busway.cli.receiving import message_as_object, text_of_body

        if self._as_json:
            known = message_as_object(event)
            kept = ("sequence_number", "body", "body_base64", "partition_key", "application_properties")
            fields = {name: known[name] for name in kept if name in known}
            line = {"partition": partition_id, **fields, "enqueued_time": known["enqueued_time"]}
            typer.echo(json.dumps(line, ensure_ascii=False))
            return
        at = "" if event.enqueued_time_ms is None else format_instant(event.enqueued_time_ms)
        key = "" if event.partition_key is None else f" key={shown(event.partition_key)}"
        typer.echo(f"{partition_id}#{event.sequence_number} {at}{key}")
        typer.echo(text_of_body(event.body))


def _counted(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
