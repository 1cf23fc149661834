"""One cell, from its beginning to a report. The same cell and seed do the same things."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from dataclasses import dataclass, field
from typing import Any, Final

from tests.changes.client import GaveUp
from tests.changes.crowd import crowd_of
from tests.changes.finale import Finale
from tests.changes.hub_clients import final_reading
from tests.changes.judgement import judge
from tests.changes.kinds import HUB
from tests.changes.matrix import Cell
from tests.changes.operator import Operator, missed
from tests.changes.record import Record
from tests.changes.world import PATIENCE_S, World
from tests.simulator.virtual_time import NoEnd, NothingWillHappen, TimeStandsStill, VirtualLoop

#: In virtual time: everything in a cell has come to its end by then.
_CELL_S_MAX: Final = 1_500.0
#: After the last step clients finish what they have begun.
_END_S_MAX: Final = PATIENCE_S + 60.0


@dataclass
class Report:
    cell: Cell
    seed: int
    violations: dict[str, list[str]] = field(default_factory=dict)
    #: Why it was not hit; empty when it was.
    missed: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    received: int = 0
    simulated_s: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.violations and not self.missed

    def told(self) -> str:
        """For people: what went wrong, and how to see it again."""
        lines = [f"{self.cell.name} (seed {self.seed})"]
        for what, which in self.violations.items():
            more = f" and {len(which) - 3} more" if len(which) > 3 else ""
            lines.append(f"  {what}: {'; '.join(which[:3])[:600]}{more}")
        lines += [f"  never hit: {reason}" for reason in self.missed]
        lines.append(
            f'  replay: python -m tests.changes --cell "{self.cell.name}" --seed {self.seed} --trace'
        )
        return "\n".join(lines)


def run_cell(cell: Cell, seed: int) -> Report:
    loop = VirtualLoop()
    loop.ends_at_s = loop.time() + _CELL_S_MAX
    report = Report(cell, seed)
    log, loudness = logging.getLogger("busway"), logging.getLogger("busway").level
    world = World(cell, seed, loop)
    loud = _LoudLog(world.record)
    log.addHandler(loud)
    log.setLevel(logging.ERROR)
    was_propagating, log.propagate = log.propagate, False
    began = loop.time()
    try:
        asyncio.set_event_loop(None)
        loop.run_until_complete(_play(world, loop))
    except (NothingWillHappen, TimeStandsStill, NoEnd) as error:
        waiting = "; ".join(f"{task.get_name()} {_where(task)}" for task in loop.live_tasks()[:12])
        world.record.find("waits for ever", f"{error} {waiting}")
    finally:
        log.removeHandler(loud)
        log.setLevel(loudness)
        log.propagate = was_propagating
    report.simulated_s = loop.time() - began
    verdict = judge(world)
    report.violations = {what: list(which) for what, which in verdict.violations.items()}
    report.missed = missed(world)
    report.trace, report.counts = world.record.trace, world.record.counts
    report.sent, report.received = verdict.counts["sent"], verdict.counts["received"]
    _end(loop)
    return report


async def _play(world: World, loop: VirtualLoop) -> None:
    record = world.record
    loop.set_exception_handler(lambda _, context: _unhandled(record, context))
    await world.open()
    clients = crowd_of(world)
    tasks = [loop.create_task(client.run(), name=client.name) for client in clients]
    operator = Operator(world)
    working = loop.create_task(operator.run(), name="operator")
    await asyncio.wait([working, *tasks], timeout=_END_S_MAX, return_when=asyncio.FIRST_COMPLETED)
    ends_early = [task for task in tasks if task.done()]
    if not working.done() and not ends_early:
        record.find("waits for ever", f"the operator {operator.doing}")
    working.cancel()
    world.is_over = True
    await asyncio.wait([working, *tasks], timeout=_END_S_MAX)
    _look_at(record, working, operator.doing)
    for client, task in zip(clients, tasks, strict=True):
        _look_at(record, task, f"{client.name} {client.doing}")
    if world.cell.kind == HUB:
        record.final = await asyncio.wait_for(final_reading(world), _END_S_MAX)
        await world.close()
        return
    finale = Finale(world)
    draining = loop.create_task(finale.play(), name="finale")
    await asyncio.wait([draining], timeout=_CELL_S_MAX / 2)
    _look_at(record, draining, f"the finale {finale.doing}")
    await world.close()


def _look_at(record: Record, task: asyncio.Task[None], doing: str) -> None:
    """How it has ended."""
    if not task.done():
        record.find("waits for ever", f"{doing} {_where(task)}")
        task.cancel()
    elif not task.cancelled() and (error := task.exception()) is not None:
        if isinstance(error, GaveUp):
            record.find("waits for ever", str(error))
        else:
            record.find("client failed", f"{doing}: {error!r} {_raised_at(error)}")


def _unhandled(record: Record, context: dict[str, Any]) -> None:
    error = context.get("exception")
    where = _raised_at(error) if isinstance(error, BaseException) else ""
    record.find("unhandled error", f"{context.get('message')} {error!r} {where}")


def _end(loop: VirtualLoop) -> None:
    """Whatever still runs is ended, unheard."""
    loop.set_exception_handler(lambda _loop, _context: None)
    for task in loop.live_tasks():
        task.cancel()
    loop.ends_at_s = loop.time() + 10.0
    with contextlib.suppress(NothingWillHappen, TimeStandsStill, NoEnd):
        loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=3)
    return " ".join(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}" for frame in frames)


def _raised_at(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)


class _LoudLog(logging.Handler):
    """Background work that failed is told to a log only; here it is an error."""

    def __init__(self, record: Record) -> None:
        super().__init__(logging.WARNING)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        where = "" if error is None else f"{error!r} {_raised_at(error)}"
        self._record.find("logged error", f"{record.name}: {record.getMessage()} {where}")
