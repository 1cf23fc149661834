"""Writes in two phases over HTTP (`busway.staging`): how Spark's sinks write each row once.

    POST   /$staging/WRITE/BATCH/STAGE?entity=E[&partition=N]&part=K[&again=1][&kind=KIND]
             stages rows: the body is AMQP messages, each behind its length in four bytes, little-endian.
             K counts the parts of the stage from 0, over all its entities; the next part comes after the answer to
             the one before it. `again`: it was sent before and the answer did not come.
             {"rows": those of the stage so far, "parts": K + 1}, or {"known": true}: the batch is decided already
    POST   /$staging/WRITE/BATCH[?wait=S][&entity=E]   {"kind": KIND, "stages": {"STAGE": rows, …}}
             decides: from now on these stages will be published, and nothing else of the batch.
             {"decided": rows, "known": …, "published": …}; waits up to S seconds for the last
    GET    /$staging/WRITE                {"batch": …, "kind": …, "published": …}
    DELETE /$staging/WRITE/BATCH/STAGE    drops what no decision names: {"dropped": …}
    DELETE /$staging/WRITE                forgets a write whose batches are all published: {"forgotten": …}

WRITE is the client's name for the query or the job, BATCH a number that grows, STAGE 32 random hexadecimal
digits. All may be repeated after a lost answer. E needs Send; to decide and to drop needs it on every entity of
the stages, and on those of the write's last decision; where nothing names an entity, on the namespace or on the
one in `entity`. To forget a write needs Manage on the namespace: if it is repeated then, it is written twice.

400 {"row": index in this part, "reason": …}: nothing of the part is staged. 409 {"code": …, "reason": …}:
`behind`, a lower batch than the last one; `forgotten`, that one was too long ago; `gap`, parts out of order;
`gone`, a stage is not there with its rows; `changed`, an entity was deleted or made again. 503 with
Retry-After: the same request may succeed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Concatenate, Final, ParamSpec

from starlette.responses import JSONResponse, Response

from busway.gateway.http.bulk.admission import BulkAdmission
from busway.gateway.http.call import SOON_S, Call
from busway.gateway.http.presence import presence_of
from busway.gateway.http.statuses import HttpRefusal
from busway.gateway.http.untrusted_input import parse_json
from busway.model.descriptions import MANAGE, SEND
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument
from busway.staging.decider import WriteName
from busway.staging.decisions import KINDS, WRITE, RowRefused, StagingRefused, TooManyRows
from busway.staging.stagings import PartName, Stagings
from busway.streams.event_hubs import EventHubs

PART_BYTES_MAX: Final = 4 * 1024 * 1024
DECISION_BYTES_MAX: Final = 1024 * 1024
STAGES_MAX: Final = 10_000
WAIT_S_MAX: Final = 30
_WRITE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BATCH: Final = re.compile(r"[0-9]{1,19}")
_BATCH_MAX: Final = 1 << 62
_STAGE: Final = re.compile(r"[0-9a-f]{32}")
_PART: Final = re.compile(r"[0-9]{1,9}")
_WAIT: Final = re.compile(r"[0-9]{1,2}")
_ANY: Final = re.compile(r".{1,300}")
_IS_AGAIN: Final = re.compile(r"[01]")


_Names = ParamSpec("_Names")
_Answer = Coroutine[object, object, Response]


def _tells_refusals(
    answer: Callable[Concatenate[StagingRoute, Call, _Names], _Answer],
) -> Callable[Concatenate[StagingRoute, Call, _Names], _Answer]:
    """The refusals of staging, in the JSON that its clients read."""

    @wraps(answer)
    async def answered(
        route: StagingRoute, call: Call, /, *given: _Names.args, **named: _Names.kwargs
    ) -> Response:
        call.retry_after_s = SOON_S
        try:
            return await answer(route, call, *given, **named)
        except StagingRefused as refusal:
            return JSONResponse({"code": refusal.code, "reason": refusal.sentence}, 409)
        except RowRefused as refusal:
            return JSONResponse({"row": refusal.row, "reason": refusal.reason}, 400)
        except TooManyRows as error:
            raise HttpRefusal(413, str(error)) from error

    return answered


class StagingRoute:
    def __init__(self, stagings: Stagings, hubs: EventHubs | None, admission: BulkAdmission) -> None:
        self._stagings = stagings
        self._hubs = hubs
        self._admission = admission

    async def unknown(self, _: Call, __: str = "") -> Response:
        raise BadArgument("An address of staging is $staging/WRITE[/BATCH[/STAGE]].")

    @_tells_refusals
    async def stage(self, call: Call, write: str, batch: str, stage: str) -> Response:
        entity = _query(call, "entity", _ANY)
        self._require_send(call, [entity])
        kind = _query(call, "kind", _ANY, WRITE)
        name = _write_name(write, batch, kind)
        part = PartName(
            _checked("STAGE", stage, _STAGE),
            int(_query(call, "part", _PART)),
            _query(call, "again", _IS_AGAIN, "0") == "1",
        )
        partition = _query(call, "partition", _ANY, "") or None
        with self._admission.enter(call.caller, presence_of(call.request)) as place:
            await place.hold(call.body_bytes(PART_BYTES_MAX))
            body = await call.body(PART_BYTES_MAX, _too_large)
            await place.turn()
            staged = await self._stagings.stage(name, part, entity, partition, body)
        if staged is None:
            return JSONResponse({"known": True})
        return JSONResponse({"rows": staged.rows(), "parts": part.number + 1})

    @_tells_refusals
    async def decide(self, call: Call, write: str, batch: str) -> Response:
        wait_s = int(_query(call, "wait", _WAIT, "0"))
        if wait_s > WAIT_S_MAX:
            raise BadArgument(f"wait: at most {WAIT_S_MAX} seconds.")
        may_send = self._any_send(call)
        given = parse_json(await call.body(DECISION_BYTES_MAX, _too_large), "The body")
        kind = given.get("kind") if isinstance(given, dict) else None
        stages = given.get("stages") if isinstance(given, dict) else None
        if not isinstance(kind, str) or not isinstance(stages, dict):
            raise BadArgument('The body must be {"kind": …, "stages": {"STAGE": rows, …}}.')
        name = _write_name(write, batch, kind)
        decided = await self._stagings.decide(name, _rows_of(stages), may_send)
        is_published = await self._stagings.published(decided.decision, wait_s)
        return JSONResponse({"decided": decided.rows, "known": decided.is_known, "published": is_published})

    @_tells_refusals
    async def drop(self, call: Call, write: str, batch: str, stage: str) -> Response:
        may_send = self._any_send(call)
        name = _write_name(write, batch, WRITE)
        _checked("STAGE", stage, _STAGE)
        is_dropped = await self._stagings.drop(name.write, name.batch, stage, may_send)
        return JSONResponse({"dropped": is_dropped})

    @_tells_refusals
    async def forget(self, call: Call, write: str) -> Response:
        call.require_on_namespace(MANAGE)
        is_forgotten = await self._stagings.forget(_checked("WRITE", write, _WRITE))
        return JSONResponse({"forgotten": is_forgotten})

    @_tells_refusals
    async def tell(self, call: Call, write: str) -> Response:
        call.require_on_namespace(SEND, MANAGE)
        decision = self._stagings.decisions.get(_checked("WRITE", write, _WRITE))
        if decision is None:
            return JSONResponse({"code": "unknown", "reason": f"Nothing is known of {write}."}, 404)
        return JSONResponse(
            {"batch": decision.batch, "kind": decision.kind, "published": decision.is_published}
        )

    # -- rights

    def _require_send(self, call: Call, paths: Iterable[str]) -> None:
        for path in paths:
            is_hub = self._hubs is not None and self._hubs.exists(path)
            call.require_for(path, path, SEND, path_key(path) if is_hub else None)

    def _any_send(self, call: Call) -> Callable[[Iterable[str]], None]:
        """Raises 401s for whoever may send nowhere; what it returns checks the entities that are concerned."""
        named = call.request.query_params.getlist("entity")
        if len(named) > 1:
            raise BadArgument("entity: one is expected.")
        if named:
            self._require_send(call, named)
        else:
            call.require_on_namespace(SEND)
        return lambda paths: self._require_send(call, paths)


def _rows_of(stages: dict[object, object]) -> dict[str, int]:
    if len(stages) > STAGES_MAX:
        raise BadArgument(f"stages: at most {STAGES_MAX} are decided at once.")
    found: dict[str, int] = {}
    for stage_id, rows in stages.items():
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0:
            raise BadArgument("stages: the number of rows of each is expected.")
        found[_checked("STAGE", str(stage_id), _STAGE)] = rows
    return found


def _write_name(write: str, batch: str, kind: str) -> WriteName:
    number = int(_checked("BATCH", batch, _BATCH))
    if number > _BATCH_MAX:
        raise BadArgument("BATCH: the number is too large.")
    if kind not in KINDS:
        raise BadArgument(f"kind: {shown(kind)} is none of {', '.join(KINDS)}.")
    return WriteName(_checked("WRITE", write, _WRITE), number, kind)


def _checked(name: str, text: str, form: re.Pattern[str]) -> str:
    if form.fullmatch(text) is None:
        raise BadArgument(f"{name}: {shown(text[:64])} is not of the form {form.pattern}.")
    return text


def _query(call: Call, name: str, form: re.Pattern[str], default: str | None = None) -> str:
    found = call.request.query_params.getlist(name)
    if not found and default is not None:
        return default
    if len(found) != 1 or form.fullmatch(found[0]) is None:
        raise BadArgument(f"{name}: {shown((found or [''])[-1][:64])} is not what is expected, once.")
    return found[0]


def _too_large(sentence: str) -> HttpRefusal:
    return HttpRefusal(413, sentence)
