"""Who reads what and how far behind (`busway.signals.pipelines`): streams report themselves, people ask.

    POST   /$pipelines/NAME    a report; the answer is what GET would tell
    GET    /$pipelines         [{name, state, stale, lagEvents, lagBytes, lagSeconds, sources: […], …}]
    GET    /$pipelines/NAME    the same of one, with each partition
    DELETE /$pipelines/NAME    forgets it, until it reports again

NAME is letters, digits, '.', '_' and '-', at most 128. All need Listen on the namespace; or with `?entity=E` on
that entity alone. Then nothing else is there: one sees pipelines that read E and nothing more, and a report about
other entities needs Listen on each of them.

400: the report cannot be read. 403: there are too many. 409: another query that lives has the name. 413: more than
64 KiB.

A report is JSON, read from strangers:

    {"query": "…", "run": "…", "state": "running", "everySeconds": 10,
     "batch": 17, "batches": 18, "rows": 12000, "rowsPerSecond": 800.5, "batchMs": 540,
     "failures": 1, "failedAtMs": …, "sentence": "…",
     "sources": [{"entity": "clicks", "consumerGroup": "$Default", "createdAtMs": …,
                  "positions": {"0": 17, "1": 4}},
                 {"entity": "orders", "held": 250}]}

Only `query`, `run` and `sources` must be there; a stream that failed before it read anything has an empty list of
these. `positions` are the numbers that are read next. Members that are not known are refused: a program that
misspells one is told so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal
from busway.gateway.http.untrusted_input import is_text, parse_json
from busway.log_lines import redacted
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN
from busway.model.entity_path import path_key, shown
from busway.model.errors import AuthenticationFailed, BadArgument, EntityNotFound, Unauthorized
from busway.signals.pipelines import (
    RUNNING,
    STATES,
    MeasuredPipelines,
    NameTaken,
    PartitionLag,
    Pipeline,
    PipelineReport,
    Pipelines,
    Reads,
    ReadSource,
    SourceLag,
)
from busway.streams.event_hubs import EventHubs

REPORT_BYTES_MAX: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_NO_STORE: Final = {"Cache-Control": "no-store"}
#: Entities whose rights are looked at in one turn of the loop.
_ENTITIES_AT_ONCE: Final = 8


class PipelinesRoute:
    """Who reads what and how far behind (`busway.signals.pipelines`): streams report themselves, people ask."""

    def __init__(self, measured: MeasuredPipelines, hubs: EventHubs | None) -> None:
        self._table = measured.table
        self._meter = measured.meter
        self._hubs = hubs

    @staticmethod
    def check_name(_: Call, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise BadArgument("A pipeline's name is letters, digits, '.', '_' and '-', at most 128 of them.")

    async def pipelines(self, call: Call) -> Response:
        entity = self._require(call)
        reads = Reads()
        told: list[object] = []
        for pipeline in self._table.all():
            if _is_visible(pipeline, entity):
                lags = await self._meter.of(pipeline, reads)
                told.append(pipeline_json(self._table, pipeline, lags, fully=False))
            await asyncio.sleep(0)
        return JSONResponse(told, headers=_NO_STORE)

    async def pipeline(self, call: Call, name: str) -> Response:
        return await self._answer(self._found(call, name))

    async def delete(self, call: Call, name: str) -> Response:
        return JSONResponse({"forgotten": self._table.delete(self._found(call, name).name)})

    async def report(self, call: Call, name: str) -> Response:
        entity = self._require(call)
        body = await call.body(REPORT_BYTES_MAX, lambda sentence: HttpRefusal(413, sentence))
        told = report_of(parse_json(body, "The body"))
        await self._require_all(call, told, entity)
        known = self._table.get(name)
        try:
            if known is not None and known.report.entity_keys() - told.entity_keys():
                await self._require_all(call, known.report, entity)
            pipeline = self._table.put(name, told)
        except (NameTaken, Unauthorized, AuthenticationFailed) as error:
            raise HttpRefusal(409, f"Another pipeline has the name {shown(name)}.") from error
        return await self._answer(pipeline)

    async def _answer(self, pipeline: Pipeline) -> Response:
        lags = await self._meter.of(pipeline, Reads())
        return JSONResponse(pipeline_json(self._table, pipeline, lags, fully=True), headers=_NO_STORE)

    def _found(self, call: Call, name: str) -> Pipeline:
        """What one may not see is not there. Raises 401s, EntityNotFound."""
        entity = self._require(call)
        found = self._table.get(name)
        if found is None or not _is_visible(found, entity):
            raise EntityNotFound(
                f"No pipeline called {shown(name)} has reported itself within the last hour."
            )
        return found

    # -- rights

    def _require(self, call: Call) -> str | None:
        """The entity that the caller is content with; None: it may see all. Raises 401s."""
        named = call.request.query_params.getlist("entity")
        if len(named) > 1:
            raise BadArgument("entity: one is expected.")
        if not named:
            call.require_on_namespace(LISTEN)
            return None
        self._require_listen(call, named[0])
        return named[0]

    async def _require_all(self, call: Call, report: PipelineReport, entity: str | None) -> None:
        """Whoever may listen to the namespace may listen to all of it. Raises 401s."""
        if entity is None:
            return
        if not report.sources:
            call.require_on_namespace(LISTEN)
        for at, key in enumerate(sorted(report.entity_keys() - {path_key(entity)}), 1):
            self._require_listen(call, key)
            if at % _ENTITIES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _require_listen(self, call: Call, path: str) -> None:
        is_hub = self._hubs is not None and self._hubs.exists(path)
        call.require_for(path, path, LISTEN, path_key(path) if is_hub else None)


def _is_visible(pipeline: Pipeline, entity: str | None) -> bool:
    return entity is None or pipeline.report.entity_keys() == {path_key(entity)}


Json = dict[str, object]

SOURCES_MAX: Final = 64
PARTITIONS_MAX: Final = 2_048
SENTENCE_CHARACTERS_MAX: Final = 500
EVERY_S_MAX: Final = 600.0
_PATH_CHARACTERS_MAX: Final = 400
_NUMBER_MAX: Final = (1 << 63) - 1
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_GROUP: Final = re.compile(r"[A-Za-z0-9._$-]{0,64}")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_MEMBERS: Final = frozenset(
    {
        *("query", "run", "state", "everySeconds", "sources"),
        *("batch", "batches", "rows", "rowsPerSecond", "batchMs"),
        *("failures", "failedAtMs", "sentence"),
    }
)
_SOURCE_MEMBERS: Final = frozenset({"entity", "consumerGroup", "createdAtMs", "positions", "held"})


# -- reading


def report_of(given: object) -> PipelineReport:
    """Raises BadArgument."""
    told = _object(given, "The body", _MEMBERS)
    sources = told.get("sources")
    if not isinstance(sources, list) or len(sources) > SOURCES_MAX:
        raise BadArgument(f"sources: a list of at most {SOURCES_MAX} entities is expected.")
    state = told.get("state", RUNNING)
    if state not in STATES:
        raise BadArgument(f"state: one of {', '.join(STATES)} is expected.")
    report = PipelineReport(
        query=_matching(told, "query", _ID),
        run=_matching(told, "run", _ID),
        state=str(state),
        every_s=min(max(_number(told, "everySeconds", 10.0), 1.0), EVERY_S_MAX),
        sources=tuple(_source(each) for each in sources),
        batch=_whole(told, "batch", -1),
        rows=_whole(told, "rows"),
        batches=_whole(told, "batches"),
        rows_per_s=_number(told, "rowsPerSecond"),
        batch_ms=_whole(told, "batchMs"),
        failures=_whole(told, "failures"),
        failed_at_ms=_whole(told, "failedAtMs"),
        sentence=_sentence(told),
    )
    if report.positions > PARTITIONS_MAX:
        raise BadArgument(f"sources: at most {PARTITIONS_MAX} partitions are reported at once.")
    return report


def _source(given: object) -> ReadSource:
    told = _object(given, "A source", _SOURCE_MEMBERS)
    entity = told.get("entity")
    if not isinstance(entity, str) or len(entity) > _PATH_CHARACTERS_MAX or not path_segments(entity):
        raise BadArgument("entity: the path of a hub, a queue or a subscription is expected.")
    positions = told.get("positions", {})
    if not isinstance(positions, dict) or len(positions) > PARTITIONS_MAX:
        raise BadArgument(f"positions: an object of at most {PARTITIONS_MAX} partitions is expected.")
    return ReadSource(
        entity=entity.strip("/"),
        consumer_group=_matching(told, "consumerGroup", _GROUP, ""),
        created_at_ms=_whole(told, "createdAtMs"),
        next_numbers={_partition(name): _whole(positions, name) for name in positions},
        held=_whole(told, "held"),
    )


def _object(given: object, what: str, known: frozenset[str]) -> dict[str, object]:
    if not isinstance(given, dict):
        raise BadArgument(f"{what} must be an object.")
    strange = sorted(set(given) - known)
    if strange:
        raise BadArgument(f"{what} has a member {shown(strange[0][:64])} that is not known.")
    return given


def _matching(
    told: Mapping[str, object], name: str, form: re.Pattern[str], default: str | None = None
) -> str:
    value = told.get(name, default)
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise BadArgument(f"{name}: a text of the form {form.pattern} is expected.")
    return value


def _whole(told: Mapping[str, object], name: str, default: int = 0) -> int:
    value = told.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not default <= value <= _NUMBER_MAX:
        raise BadArgument(f"{shown(name[:32])}: a whole number from {default} on is expected.")
    return value


def _number(told: Mapping[str, object], name: str, default: float = 0.0) -> float:
    value = told.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _NUMBER_MAX:
        raise BadArgument(f"{name}: a number from 0 on is expected.")
    return float(value)


def _partition(name: str) -> int:
    if _PARTITION.fullmatch(name) is None:
        raise BadArgument(f"positions: {shown(name[:32])} is not a partition.")
    return int(name)


def _sentence(told: Mapping[str, object]) -> str:
    """Whoever wrote it: no secrets, on one line."""
    value = told.get("sentence", "")
    if not isinstance(value, str) or not is_text(value):
        raise BadArgument("sentence: a text is expected.")
    line = " ".join(redacted(value).split())
    return "".join(letter for letter in line if letter.isprintable())[:SENTENCE_CHARACTERS_MAX]


# -- telling


def pipeline_json(table: Pipelines, pipeline: Pipeline, lags: list[SourceLag], *, fully: bool) -> Json:
    """`fully`: each partition too."""
    report = pipeline.report
    known = [lag.seconds for lag in lags if lag.seconds is not None]
    return {
        "name": pipeline.name,
        "query": report.query,
        "run": report.run,
        "state": report.state,
        "stale": table.is_stale(pipeline),
        "reportedAtMs": pipeline.reported_at_ms,
        "reportAgeSeconds": round(table.age_s(pipeline), 3),
        "batch": report.batch,
        "batches": report.batches,
        "rows": report.rows,
        "rowsPerSecond": report.rows_per_s,
        "batchMs": report.batch_ms,
        "failures": report.failures,
        "failedAtMs": report.failed_at_ms,
        "sentence": report.sentence,
        "lagEvents": sum(lag.events for lag in lags),
        "lagBytes": sum(lag.bytes for lag in lags),
        "lagSeconds": max(known) if known else None,
        "sources": [_source_json(lag, fully=fully) for lag in lags],
    }


def _source_json(lag: SourceLag, *, fully: bool) -> Json:
    told: Json = {
        "entity": lag.source.entity,
        "consumerGroup": lag.source.consumer_group,
        "held": lag.source.held,
        "lagEvents": lag.events,
        "lagBytes": lag.bytes,
        "lagSeconds": lag.seconds,
        "problem": lag.problem,
    }
    return {**told, "partitions": [_partition_json(each) for each in lag.partitions]} if fully else told


def _partition_json(lag: PartitionLag) -> Json:
    return {
        "partition": lag.partition,
        "next": lag.next_number,
        "lagEvents": lag.events,
        "lagBytes": lag.bytes,
        "lagSeconds": lag.seconds,
        "lost": lag.lost,
    }
