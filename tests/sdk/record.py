"""What was run last with SDKs of other languages: `python -m tests.sdk.record` writes down what the programs printed
under `make test-sdk` (build/sdk), and COMPATIBILITY.md tells it. What a program did not print counts as not run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.sdk.program import BUILD, Program
from tests.sdk.programs import PROGRAMS

LAST_RUN = Path(__file__).with_name("last_run.json")

#: program → way → operation → whether it worked
Results = dict[str, dict[str, dict[str, bool]]]


def printed(program: Program, way: str) -> dict[str, bool]:
    """By the last run, of operations that there still are."""
    lines = BUILD / f"{program.name}-{way}.jsonl"
    if not lines.exists():
        return {}
    wanted = set(program.operations_by(way))
    found = (json.loads(line) for line in lines.read_text().splitlines() if line.startswith("{"))
    return {one["operation"]: one["passed"] for one in found if one["operation"] in wanted}


def recorded() -> tuple[str, Results]:
    """The day and what was found on it."""
    if not LAST_RUN.exists():
        return "", {}
    record = json.loads(LAST_RUN.read_text())
    return record["day"], record["results"]


def not_run(results: Results) -> Iterator[str]:
    for program in PROGRAMS:
        for way in program.ways:
            found = results.get(program.name, {}).get(way, {})
            yield from (
                f"{program.name}/{way}/{name}" for name in program.operations_by(way) if name not in found
            )


def main() -> int:
    results = {
        program.name: {way: printed(program, way) for way in program.ways}
        for program in PROGRAMS
        if any(printed(program, way) for way in program.ways)
    }
    record = {"day": datetime.now(UTC).date().isoformat(), "results": results}
    LAST_RUN.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    missing = list(not_run(results))
    print(f"{LAST_RUN.name}: {len(missing)} operations were not run", *missing[:20], sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
