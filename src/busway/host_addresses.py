"""Where the name of a host leads. It is asked once in the life of a process, so that what was found to be loopback,
and may therefore be served plainly, is what is bound: a name server cannot give two answers."""

import socket
from functools import cache
from ipaddress import ip_address
from typing import Final

#: What a socket is bound to: family and address, the port left at 0.
Address = tuple[socket.AddressFamily, tuple[str | int, ...]]

FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


class HostUnknown(Exception):
    """The name leads nowhere; the text says why."""


@cache
def addresses_of(host: str) -> tuple[Address, ...]:
    """Every address of the host, IPv4 first. Raises HostUnknown."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnknown(str(error)) from error
    addresses: set[Address] = {(entry[0], _parts(entry[4])) for entry in found if entry[0] in FAMILIES}
    return tuple(sorted(addresses, key=lambda pair: (FAMILIES.index(pair[0]), str(pair[1]))))


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach any of its addresses. False for a name that leads nowhere."""
    try:
        addresses = addresses_of(host)
    except HostUnknown:
        return False
    return bool(addresses) and all(ip_address(str(address[0])).is_loopback for _, address in addresses)


def _parts(address: tuple[object, ...]) -> tuple[str | int, ...]:
    return tuple(part for part in address if isinstance(part, str | int))
