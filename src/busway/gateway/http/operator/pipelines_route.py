"""Who reads what and how far behind (`busway.signals.pipelines`): streams report themselves, people ask.

    POST   /$pipelines/NAME    a report (`pipeline_report`); the answer is what GET would tell
    GET    /$pipelines         [{name, state, stale, lagEvents, lagBytes, lagSeconds, sources: […], …}]
    GET    /$pipelines/NAME    the same of one, with each partition
    DELETE /$pipelines/NAME    forgets it, until it reports again

NAME is letters, digits, '.', '_' and '-', at most 128. All need Listen on the namespace; or with `?entity=E` on that
entity alone. Then nothing else is there: one sees pipelines that read E and nothing more, and a report about other
entities needs Listen on each of them.

400: the report cannot be read. 403: there are too many. 409: another query that lives has the name. 413: more than
64 KiB.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.gateway.http.call import Call
from busway.gateway.http.json_input import parse_json
from busway.gateway.http.operator.pipeline_report import pipeline_json, report_of
from busway.gateway.http.statuses import HttpRefusal
from busway.model.descriptions import LISTEN
from busway.model.entity_path import path_key, shown
from busway.model.errors import AuthenticationFailed, BadArgument, EntityNotFound, Unauthorized
from busway.signals.pipeline_figures import MeasuredPipelines
from busway.signals.pipeline_lag import Reads
from busway.signals.pipelines import NameTaken, Pipeline, Report
from busway.streams.event_hubs import EventHubs

REPORT_BYTES_MAX: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_NO_STORE: Final = {"Cache-Control": "no-store"}
#: Entities whose rights are looked at in one turn of the loop.
_ENTITIES_AT_ONCE: Final = 8


class PipelinesRoute:
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

    async def _require_all(self, call: Call, report: Report, entity: str | None) -> None:
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
