"""Writes the second half of COMPATIBILITY.md: what was tried with the SDKs of other languages, and their live tests.

The first half is written by hand. `--check` fails when the second is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.sdk.known_failures import reason  # noqa: E402
from tests.sdk.programs import PROGRAMS  # noqa: E402
from tests.sdk.record import recorded  # noqa: E402

PAGE = ROOT / "COMPATIBILITY.md"
#: Written by hand: they are run by hand, with clients changed to connection strings.
LIVE_TESTS = ROOT / "tests/sdk/live_tests.md"
#: The last line that is written by hand.
END_OF_HAND = (
    "<!-- What follows is written by scripts/compatibility.py; edit tests/sdk/live_tests.md instead. -->"
)


def page() -> str:
    by_hand, mark, _ = PAGE.read_text().partition(END_OF_HAND)
    if not mark:
        raise SystemExit(f"COMPATIBILITY.md has no line {END_OF_HAND}")
    return "\n".join([by_hand + mark, "", *clients()]) + "\n"


def clients() -> list[str]:
    """What was tried with SDKs of other languages: from the last run that was written down (tests.sdk.record)."""
    day, results = recorded()
    lines = [
        "## Clients of other languages",
        "",
        "Programs with unmodified SDKs, run by `make test-sdk` on loopback with the emulator's switch, and over TLS",
        f"and WebSocket with a certificate. The table records each program's last run ({day or 'none'}): how",
        "many operations worked by each way, of how many. Python's SDKs are tried by `tests/conformance`; .NET's",
        "were not run.",
        "",
        "| SDK | version | about | worked | did not |",
        "|---|---|---|---|---|",
    ]
    reasons: dict[str, str] = {}
    for program in PROGRAMS:
        ran = results.get(program.name, {})
        for about, operations in program.capabilities().items():
            ways = [way for way in program.ways if set(operations) <= set(program.operations_by(way))]
            worked = [f"{way} {_worked(ran.get(way, {}), operations)}/{len(operations)}" for way in ways]
            failed = {
                name: _why_not(program.name, way, name, ran.get(way, {}))
                for way in ways
                for name in operations
                if not ran.get(way, {}).get(name, False)
            }
            reasons |= {f"{name} ({program.sdk} {program.version})": why for name, why in failed.items()}
            told = ", ".join(sorted(failed))
            lines.append(f"| {program.sdk} | {program.version} | `{about}` | {', '.join(worked)} | {told} |")
    told = [f"- {name}: {why}." for name, why in sorted(reasons.items())]
    return [*lines, "", *told, "", *LIVE_TESTS.read_text().splitlines()]


def _worked(ran: dict[str, bool], operations: list[str]) -> int:
    return sum(ran.get(name, False) for name in operations)


def _why_not(program: str, way: str, operation: str, ran: dict[str, bool]) -> str:
    if operation not in ran:
        return "was not run"
    return reason(program, way, operation) or "failed, and nobody knows why"


def main() -> int:
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        print("COMPATIBILITY.md is stale: run python scripts/compatibility.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
