"""Records what the programs of tests/sdk say: `python -m tests.wire.record_programs [PROGRAM [OPERATION…]]`. Replayed
by `test_program_transcripts`, without their languages; recorded anew when an SDK or what we write changes."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates
from busway.gateway.tls_files import TlsFiles
from tests.sdk.program import Program
from tests.sdk.programs import PROGRAMS
from tests.unit.gateway.amqp_peer import KEY
from tests.wire.hub_service import Step, save
from tests.wire.program_service import ENTITY, FOLDER, ProgramService, title

WAIT_S = 900.0
_KEY = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={KEY}"
_QUEUE = (
    "send_receive_complete",
    "every_property_comes_back",
    "sequence_body",
    "batch",
    "receive_and_delete",
    "peek",
    "schedule_and_cancel",
    "abandon_with_changes",
    "defer_and_fetch",
    "dead_letter",
)
_SESSIONS = ("session_in_order", "next_session", "session_state", "session_settlements", "peek_in_a_session")
_TRANSACTIONS = (
    "sends_are_committed",
    "sends_are_rolled_back",
    "every_settlement_is_committed",
    "abandoned_comes_to_an_open_request",
)
_EVENTS = ("publish_and_read", "every_property_comes_back", "by_key", "from_a_number")
_JMS = (
    "text_message",
    "every_property_comes_back",
    "every_header_comes_back",
    "browse",
    "selector_on_a_queue_is_refused",
    "request_and_reply",
    "sends_are_committed",
    "receives_are_committed",
)
#: Programs that know nothing but TLS; what is inside of it is recorded.
_SECURED = ("java-service-bus-older", "azure-servicebus-jms")
#: And this one there, too.
_SECURED_ON_LOOPBACK = ("rust-event-hubs",)
#: Operations that need neither time that passes nor HTTP, of each program.
RECORDED: dict[str, tuple[str, ...]] = {
    "go-service-bus": (*_QUEUE, *_SESSIONS, "several_data_sections_and_a_footer", "list_sessions"),
    "go-event-hubs": (*_EVENTS, "properties_of_a_hub", "higher_owner_takes_over", "processor"),
    "java-service-bus": (*_QUEUE, *_SESSIONS, *_TRANSACTIONS),
    "java-service-bus-older": (
        "send_receive_complete",
        "schedule_and_cancel",
        "defer_and_fetch",
        "session_state",
        "every_settlement_is_committed",
        "abandoned_comes_to_an_open_request",
    ),
    "java-event-hubs": (
        "publish_a_batch",
        "every_property_comes_back",
        "by_key",
        "from_a_number",
        "properties_of_a_hub",
        "questions_of_a_consumer",
        "higher_owner_takes_over",
        "buffered_producer",
        "processor",
    ),
    "qpid-jms": (
        *_JMS,
        "selector_of_a_browser",
        "sends_are_rolled_back",
        "receive_and_send_together",
        "missing_queue_is_told",
        "wrong_key_is_told",
    ),
    "azure-servicebus-jms": _JMS,
    "javascript-service-bus": (
        *(name for name in _QUEUE if name != "sequence_body"),
        *_SESSIONS,
        "value_and_sequence_bodies",
        "footer",
        "body_null",
        "shared_access_signature",
    ),
    "javascript-event-hubs": (
        *_EVENTS,
        "footer",
        "body_null",
        "questions",
        "higher_owner_takes_over",
        "processor",
        "shared_access_signature",
    ),
    "rust-event-hubs": (
        *_EVENTS,
        "sequence_body",
        "several_data_sections_and_a_footer",
        "properties_of_a_hub",
        "properties_of_a_partition",
        "higher_owner_takes_over",
        "processor",
    ),
}


def kind_of(program: Program, operation: str) -> str:
    if "hub" in program.entities:
        return "hub"
    return "session-queue" if "session" in operation else "queue"


async def _some(incoming: asyncio.StreamReader) -> bytes:
    """Nothing at the end, and when a program has ended without a close."""
    try:
        return await incoming.read(65_536)
    except ConnectionResetError:
        return b""


def _secured(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    return context


def _by_loopback(port: int) -> dict[str, str]:
    string = f"Endpoint=sb://127.0.0.1:{port};{_KEY};UseDevelopmentEmulator=true"
    return {"BUSWAY_CONNECTION_STRING": string, "BUSWAY_MODE": "loopback", "BUSWAY_ADDRESS": ""}


def _by_tls(port: int) -> dict[str, str]:
    string = f"Endpoint=sb://localhost;{_KEY}"
    return {"BUSWAY_CONNECTION_STRING": string, "BUSWAY_MODE": "tls", "BUSWAY_ADDRESS": f"localhost:{port}"}


class Recorder:
    """A socket before a `ProgramService`."""

    def __init__(self, service: ProgramService) -> None:
        self.steps: list[Step] = []
        self._service = service
        self._writers: list[asyncio.StreamWriter] = []
        #: One for each connection.
        self._serving: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()

    async def play(self, program: Program, operation: str, files: TlsFiles) -> str:
        """What the program printed."""
        is_secured = program.name in (*_SECURED, *_SECURED_ON_LOOPBACK)
        tls = _secured(files) if is_secured else None
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        own = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
        environment = {
            **(_by_tls(port) if program.name in _SECURED else _by_loopback(port)),
            "BUSWAY_CA_FILE": str(files.ca),
            "SSL_CERT_FILE": str(files.ca),
            "BUSWAY_ENTITY": ENTITY,
        }
        running = await asyncio.create_subprocess_exec(
            *program.command(program.built()),
            operation,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, **environment},
        )
        printed, _ = await asyncio.wait_for(running.communicate(), WAIT_S)
        server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._serving, return_exceptions=True)
        return printed.decode()

    async def _serve(self, incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        self._writers.append(writer)
        number = len(self._writers)
        while data := await _some(incoming):
            async with self._turn:
                step = ("C", number, data)
                self.steps.append(step)
                for answer in await self._service.do(step):
                    self.steps.append(answer)
                    peer = self._writers[answer[1] - 1]
                    if not peer.is_closing():  # it may have left while another connection is served
                        peer.write(answer[2])
            if self._service.is_closed(number):
                break
        writer.close()


async def record(program: Program, operation: str, files: TlsFiles) -> None:
    kind = kind_of(program, operation)
    wall_ms = Clock().wall_ms()
    service = ProgramService(kind, wall_ms)
    await service.open()
    recorder = Recorder(service)
    try:
        printed = await recorder.play(program, operation, files)
    finally:
        await service.close()
    if '"passed":true' not in printed.replace(" ", ""):
        sys.stdout.write(f"{program.name} {operation}: not recorded, it does not work: {printed[:300]}\n")
        return
    save(
        FOLDER / f"{program.name}-{operation}.txt",
        title(kind, wall_ms, f"{program.name}, {operation}"),
        recorder.steps,
    )
    sys.stdout.write(f"{program.name} {operation}: {len(recorder.steps)} steps\n")


def main(arguments: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = ensure_certificates(Path(folder), Clock(), Entropy(), ["localhost", "127.0.0.1"])
        for program in PROGRAMS:
            if program.name in RECORDED and program.name in (arguments[:1] or [program.name]):
                for operation in arguments[1:] or RECORDED[program.name]:
                    asyncio.run(record(program, operation, files))


if __name__ == "__main__":
    main(sys.argv[1:])
