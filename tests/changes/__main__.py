"""See `tests.changes`. Exit status 1 when anything is wrong."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from busway.compiled import status
from tests.changes.cell import run_cell
from tests.changes.matrix import Cell, cell_of, covering, impossible_cells, pairs_of, possible_cells


def main() -> int:
    _fix_hashes()
    options = _options()
    if options.list:
        return _list()
    if options.cell:
        return _replay(cell_of(options.cell), options.seed, options.trace)
    cells = possible_cells()
    chosen = [cell for cell in (cells if options.all else covering(cells)) if options.only in cell.name]
    return _run(chosen, options)


def _fix_hashes() -> None:
    """Sets of texts are walked in the order of their hashes: a replay must not depend on them."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.changes", *sys.argv[1:]])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.changes", description="Change under traffic.")
    parser.add_argument("--list", action="store_true", help="all cells, and why there are no others")
    parser.add_argument("--cell", default="", help="replay this one: 'kind / change / traffic'")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="with --cell: print everything that happened")
    parser.add_argument("--all", action="store_true", help="all cells, not only those of all pairs")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--keep-going", action="store_true", help="also after a cell that failed")
    parser.add_argument("--json", action="store_true", help="the sum as a line of JSON")
    return parser.parse_args()


def _list() -> int:
    cells = possible_cells()
    for cell in cells:
        print(cell.name)
    for reason, count in impossible_cells().items():
        print(f"no cell ({count}): {reason}")
    print(
        f"{len(cells)} cells, {sum(impossible_cells().values())} impossible,"
        f" {len(pairs_of(cells))} pairs in {len(covering(cells))} cells"
    )
    return 0


def _replay(cell: Cell, seed: int, is_traced: bool) -> int:
    report = run_cell(cell, seed)
    if is_traced:
        print("\n".join(report.trace))
    for what, count in sorted(report.counts.items()):
        print(f"{count:>7}  {what}")
    print(f"{report.simulated_s:.3f} s of virtual time")
    print("holds" if report.holds else report.told())
    return 0 if report.holds else 1


def _run(cells: list[Cell], options: argparse.Namespace) -> int:
    began = time.process_time()
    failed: dict[str, int] = {}
    told = {
        "build": status(),
        "seed": options.seed,
        "planned": len(cells),
        "cells": 0,
        "sent": 0,
        "received": 0,
    }
    for cell in cells:
        report = run_cell(cell, options.seed)
        told["cells"] += 1
        told["sent"] += report.sent
        told["received"] += report.received
        if report.holds:
            continue
        print(report.told(), file=sys.stderr, flush=True)
        for what in (*report.violations, *(["never hit"] if report.missed else [])):
            failed[what] = failed.get(what, 0) + 1
        if not options.keep_going:
            break
    told["cpu_s"] = round(time.process_time() - began, 1)
    told["failed"] = failed
    ruled_out = sum(impossible_cells().values())
    if options.json:
        print(json.dumps(told))
    else:
        print(f"{told['cells']} of {len(cells)} cells ({ruled_out} are impossible: --list), {told}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
