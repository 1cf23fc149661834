"""Sentences about a server that cannot be reached: its address, and what the system says, in people's words."""

import asyncio
import http.client
import socket
import ssl

import pytest

from busway.client.connection_string import ConnectionString
from busway.client.errors import Unreachable
from busway.client.wire import open_wire

REFUSED = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 5672)")


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (REFUSED, "Connection refused"),
        (
            OSError(f"Multiple exceptions: {ConnectionRefusedError(111, 'a')}, {REFUSED}"),
            "Connection refused",
        ),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError(), "timed out"),
        (TimeoutError("timed out"), "timed out"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
        (http.client.RemoteDisconnected("Remote end closed"), "Remote end closed"),
        (http.client.IncompleteRead(b""), "IncompleteRead(0 bytes read)"),
        (EOFError(), "EOFError"),
    ],
)
def test_what_keeps_from_a_server_is_said_with_its_address(cause: BaseException, reason: str) -> None:
    """Errors help: the same words whatever part of Python met the fault."""
    found = str(Unreachable.at("bus.example", 5672, cause))
    assert found == f"The server at bus.example:5672 cannot be reached: {reason}."


def test_a_server_that_hangs_up_is_named() -> None:
    """Errors help: over AMQP, before it has said a word, and where nobody listens."""

    async def hang_up() -> tuple[int, list[str]]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        async with server:
            told = [await _failure(port)]
        return port, [*told, await _failure(port)]

    port, told = asyncio.run(hang_up())
    assert told == [
        f"The server at 127.0.0.1:{port} closed the connection.",
        f"The server at 127.0.0.1:{port} cannot be reached: Connection refused.",
    ]


async def _failure(port: int) -> str:
    text = (
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    )
    with pytest.raises(Unreachable) as caught:
        await open_wire(ConnectionString.parse(text), None)
    return str(caught.value)
