"""An HTTP server in this process that answers what a test has written down, and notes what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from busway_spark.wire.bus import Bus

#: Closes the connection instead of an answer.
HANG_UP = b""


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class ScriptedDoor:
    """Answers in their order, the last one for ever."""

    answers: list[bytes]
    port: int = 0
    connections: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def bus(self) -> Bus:
        return Bus(
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true"
        )

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while (first := lines.readline()) not in (b"", b"\r\n"):
                length = 0
                while (line := lines.readline()) not in (b"", b"\r\n"):
                    name, _, value = line.decode().partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                lines.read(length)
                self.asked.append(first.decode().strip().removesuffix(" HTTP/1.1"))
                said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if said == HANG_UP:
                    return
                connection.sendall(said)


@contextmanager
def scripted(*answers: bytes) -> Iterator[ScriptedDoor]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = ScriptedDoor(list(answers), listener.getsockname()[1])
        threading.Thread(target=door.serve, args=(listener,), daemon=True).start()
        yield door
        listener.shutdown(socket.SHUT_RDWR)  # or `accept` would not notice
