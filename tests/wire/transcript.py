"""Conversations as text: one line per read or write, `C` from the client, `S` from the server, then hexadecimal.
`M` lines at the start are the messages that lay in the queue."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "transcripts"


def load(path: Path) -> list[tuple[str, bytes]]:
    lines = [line for line in path.read_text("ascii").splitlines() if line and not line.startswith("#")]
    return [(line[0], bytes.fromhex(line[2:])) for line in lines]


def save(path: Path, title: str, turns: list[tuple[str, bytes]]) -> None:
    lines = [f"# {title}", *(f"{who} {data.hex()}" for who, data in turns if data)]
    path.write_text("\n".join(lines) + "\n", "ascii")
