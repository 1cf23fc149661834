"""Reads the first events of a hub's only partition in bulk: `python -m benchmarks.bulk_read CONNECTION HUB COUNT`."""

from __future__ import annotations

import argparse
import http.client
import struct
import sys
import time
from collections.abc import Iterator

from busway.client.connection_string import ConnectionString, token_for

#: Behind a chunk's length: magic, flags, count of events.
_CHUNK_HEAD = struct.Struct("<I4sII")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("connection")
    parser.add_argument("hub")
    parser.add_argument("count", type=int)
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    for _ in range(given.times):
        found = sum(counts(given.connection, given.hub, 0, given.count))
        if found < given.count:
            print(f"{found} events instead of {given.count}", file=sys.stderr)
            return 1
    return 0


def counts(connection_string: str, hub: str, first: int, to: int | None = None) -> Iterator[int]:
    """Of each chunk from a number on."""
    target = ConnectionString.parse(connection_string)
    token = token_for(target, f"http://{target.authority}/{hub}", time.time())
    connection = http.client.HTTPConnection(target.host, target.http_port)
    path = f"/{hub}/partitions/0/events?from={first}&bytes={1 << 40}"
    path += "" if to is None else f"&to={to}"
    connection.request("GET", path, headers={"Authorization": token})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    skipped = bytearray(1 << 20)
    while head := answer.read(_CHUNK_HEAD.size):
        size, _, _, count = _CHUNK_HEAD.unpack(head)
        left = size - (_CHUNK_HEAD.size - 4)
        while left > 0:
            left -= answer.readinto(memoryview(skipped)[: min(left, len(skipped))])
        yield count
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
