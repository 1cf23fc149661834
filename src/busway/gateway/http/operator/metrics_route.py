"""`GET /metrics`: the figures of the namespace for Prometheus.

On loopback they are open to everybody who may see the status page. Elsewhere they need a token with Manage or
Listen on the namespace itself, because names of entities are in them: a rule of one entity does not open them, not
even of an entity called `metrics`.

That entity may exist. Administration clients name the version of their API in every request and scrapers never do,
so a request with `api-version` means the entity.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from busway.gateway.http.call import Call
from busway.model.descriptions import LISTEN, MANAGE

if TYPE_CHECKING:
    from busway.signals.exposition import Exposition, MeasuredNamespace
    from busway.signals.hub_figures import MeasuredHubs
    from busway.signals.measured_process import MeasuredProcess
    from busway.signals.pipeline_figures import MeasuredPipelines

METRICS_PATH: Final = "metrics"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS: Final = {"Cache-Control": "no-store"}


class MetricsRoute:
    def __init__(
        self,
        namespace: "MeasuredNamespace",
        hubs: "MeasuredHubs | None" = None,
        process: "MeasuredProcess | None" = None,
        pipelines: "MeasuredPipelines | None" = None,
        *,
        is_open: bool,
    ) -> None:
        self._measured = (namespace, hubs, process, pipelines)
        self._exposition: Exposition | None = None
        self._is_open = is_open

    @staticmethod
    def is_meant(call: Call) -> bool:
        return (
            call.path == METRICS_PATH
            and call.method in ("GET", "HEAD")
            and "api-version" not in call.request.query_params
        )

    async def answer(self, call: Call) -> Response:
        if not self._is_open:
            call.require_on_namespace(MANAGE, LISTEN)
        if self._exposition is None:
            # In a thread: it takes longer than a request should hold the loop.
            kind = await asyncio.to_thread(_exposition_class)
            self._exposition = self._exposition or kind(*self._measured)
        return Response(await self._exposition.text(), 200, _HEADERS, media_type=CONTENT_TYPE)


def _exposition_class() -> "type[Exposition]":
    """Imported with the first scrape: most servers are never scraped."""
    from busway.signals.exposition import Exposition

    return Exposition
