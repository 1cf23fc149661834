"""What counts as loopback, and that it is what is bound."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway import host_addresses
from busway.gateway.listener import Listener, Service
from busway.serve_options import ServeOptions, WrongOptions

PLAIN = Service(plain=True, tls=False, amqp=True, http=True)


class Names:
    """A name server that answers as the test likes, and counts how often it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def getaddrinfo(self, _host: str, port: int, **_hints: object) -> list[tuple[object, ...]]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise socket.gaierror("no such name")
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in answer
        ]


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    host_addresses.addresses_of.cache_clear()
    yield
    host_addresses.addresses_of.cache_clear()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "127.1"])
def test_this_machine_is_loopback(host: str) -> None:
    """A-11: by any of its names and addresses."""
    assert ServeOptions(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "::ffff:10.1.2.3"])
def test_an_address_of_the_network_is_not(host: str) -> None:
    """A-11: an address of the network is not."""
    assert not ServeOptions(host=host).is_loopback


@pytest.mark.parametrize(
    ("host", "addresses", "is_loopback"),
    [
        ("127.attacker.example", ["203.0.113.5"], False),
        ("127.attacker.example", [], False),
        ("mine.example", ["127.0.0.1", "::1"], True),
        ("half.example", ["127.0.0.1", "203.0.113.5"], False),
        ("half.example", ["::1", "2001:db8::1"], False),
        ("mapped.example", ["::ffff:203.0.113.5"], False),
    ],
)
def test_a_name_is_what_all_its_addresses_are(
    monkeypatch: pytest.MonkeyPatch, host: str, addresses: list[str], is_loopback: bool
) -> None:
    """Attack: `--host 127.attacker.example` was taken for loopback by its first letters, and served plainly."""
    monkeypatch.setattr(socket, "getaddrinfo", Names(addresses).getaddrinfo)
    options = ServeOptions(host=host, dev_key=True)
    assert options.is_loopback is is_loopback
    if not is_loopback:
        with pytest.raises(WrongOptions, match="needs --tls-cert"):
            options.check()
        with pytest.raises(WrongOptions, match="loopback address only"):
            ServeOptions(
                host=host, dev_key=True, tls_cert=Path("c"), tls_key=Path("k"), key_file=Path("f")
            ).check()
        with pytest.raises(WrongOptions, match=r"--allow-reset .* loopback address only"):
            ServeOptions(
                host=host, allow_reset=True, tls_cert=Path("c"), tls_key=Path("k"), key_file=Path("f")
            ).check()


def test_what_was_tested_is_what_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a name server that says loopback when it is asked first, and everywhere the second time."""
    names = Names(["127.0.0.1"], ["0.0.0.0"])
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    assert ServeOptions(host="changing.example").is_loopback

    async def listen() -> list[str]:
        listener = Listener(asyncio.Protocol, asyncio.Protocol, None)
        await listener.start("changing.example", 0, PLAIN)
        bound = [str(listening.getsockname()[0]) for listening in listener._sockets]
        await listener.close()
        return bound

    assert asyncio.run(listen()) == ["127.0.0.1"]
    assert names.asked == 1
