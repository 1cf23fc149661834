"""python -m tests.chaos.mutations: breaks the sources on purpose and prints which test sees each fault.

Exit status 1 when a fault was seen by nobody, or its place in the sources was not found.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.chaos.mutations.play import FAULTS, JOBS, play_all, told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutations", description=__doc__)
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    parser.add_argument("--jobs", type=int, default=JOBS)
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if fault.name in options.only]
    if options.list:
        for fault in chosen:
            print(f"{fault.name:<44} {fault.about}")
        return 0
    begun = time.monotonic()
    seen = play_all(chosen, options.jobs, lambda one: print(told(one), flush=True))
    missed = [one for one in seen if one.problem]
    print(f"{len(seen) - len(missed)} of {len(seen)} faults were seen, in {time.monotonic() - begun:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
