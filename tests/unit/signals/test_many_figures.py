"""The figures of many busy entities: what one scrape may cost, and what it says."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.limits import Limits
from busway.signals.exposition import Exposition
from tests.harness.measured import check_within, measured
from tests.unit.broker.namespace_bench import NamespaceBench

COUNT = 10_000
TURN_S_MAX = 0.02
WHOLE_S_MAX = 1.5


class StallMeter:
    """The processor time of the longest turn of this thread's loop."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._is_on = True

    async def run(self) -> None:
        while self._is_on:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.worst_s = max(self.worst_s, time.thread_time() - began)

    def stop(self) -> None:
        self._is_on = False


async def busy_namespace(count: int) -> NamespaceBench:
    bench = NamespaceBench(1, Limits(entities_max=2 * COUNT))
    await bench.namespace.open()
    await bench.namespace.create([NewEntity(QueueDescription(f"queue-{number}")) for number in range(count)])
    for number in range(count):
        flow = bench.namespace.flows.of_fragment(f"queue-{number}")
        flow.taken_in(5, 500, 0.003)
        flow.handed_out(3, 300)
        flow.answered(8, [])
    return bench


@measured
def test_ten_thousand_busy_queues_are_told_in_short_turns() -> None:
    """O-1, Attack: it took 4.5 s of processor time, of which others got little."""

    async def scene() -> None:
        bench = await busy_namespace(COUNT)
        exposition = Exposition(bench.namespace)
        await exposition.text()
        gc.collect()
        gc.disable()
        meter = StallMeter()
        measuring = asyncio.ensure_future(meter.run())
        text = await exposition.text()
        meter.stop()
        await measuring
        began = time.process_time()
        assert len(await exposition.text()) == pytest.approx(len(text), abs=200)
        whole_s = time.process_time() - began
        gc.enable()
        await bench.namespace.close()
        assert text.count(b'entity="queue-') == COUNT * (5 + 12 + 11)
        check_within(meter.worst_s, TURN_S_MAX, "one turn")
        check_within(whole_s, WHOLE_S_MAX, "all of it")

    asyncio.run(scene())


def test_the_text_is_what_prometheus_reads() -> None:
    """O-5: whatever a name holds, and however large a number is."""

    async def scene() -> bytes:
        bench = await busy_namespace(3)
        flow = bench.namespace.flows.of_fragment("queue-1")
        flow.bytes_in = 123_456_789_012
        flow.latency_s = 1e-7
        text = await Exposition(bench.namespace).text()
        await bench.namespace.close()
        return text

    text = asyncio.run(scene()).decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    entity = ("entity", "queue-1")
    assert found["busway_incoming_bytes_total", entity] == 123_456_789_012
    assert found["busway_server_send_latency_seconds_sum", entity] == 1e-7
    assert found["busway_server_send_latency_seconds_count", entity] == 5
    buckets = {
        dict(key[1:])["le"]: value
        for key, value in found.items()
        if key[0].endswith("_bucket") and entity in key
    }
    assert buckets["0.0025"] == 0
    assert buckets["0.005"] == buckets["+Inf"] == 5
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert kinds["busway_incoming_messages"] == "counter"
    assert kinds["busway_active_messages"] == "gauge"
    assert kinds["busway_server_send_latency_seconds"] == "histogram"


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", "ü{}=,"])
def test_a_name_comes_back_as_it_was(name: str) -> None:
    """O-5: quotes, backslashes and line ends are written so that they are one again when read."""
    from busway.signals.metrics import labels_text

    line = f"busway_up{labels_text(('entity', 'store'), (name, 's'))} 1.0\n"
    ((sample,),) = [
        family.samples for family in text_string_to_metric_families("# TYPE busway_up gauge\n" + line)
    ]
    assert sample.labels == {"entity": name, "store": "s"}
