"""`busway pipeline deadletters` as a job: a real server, a real Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway_spark.pipeline.deadletters import deadletters
from busway_spark.pipeline.deadletters.columns import BODY, Fix, WrongFix, fingerprint
from busway_spark.pipeline.deadletters.deadletters import DeadLetters, run
from busway_spark.pipeline.deadletters.plan import RESUBMITTED
from busway_spark.pipeline.deadletters.report import Survey
from busway_spark.pipeline.job import JobFailed, JobPlace
from busway_spark.pipeline.report.page import slot_seconds
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell
from tests.spark.deadletter_rig import bury, dead_letters_of, peek_all

NOBODY_THERE = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=hidden;UseDevelopmentEmulator=true"
)
#: A reason and description for each of twelve messages; ids and numbers differ, the error does not.
REASONS = [
    *(
        ("BadTenant", f"tenant {at} of order {uuid4()} is unknown at 2026-11-15T09:00:0{at}Z")
        for at in range(6)
    ),
    *(("<script>", f"line {at}: <img src=x onerror=alert({at})>") for at in range(4)),
    *(("TooOld", "it is too old") for _ in range(2)),
]


@pytest.fixture
def place(server: RunningServer, spark: SparkSession) -> JobPlace:
    assert spark.version
    return JobPlace(Bus(server.connection_string), master="local[2]")


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    """Its own: a connection that waits for Spark for long is closed by the server."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


@pytest.fixture
def queue(admin: ServiceBusAdministrationClient, server: RunningServer) -> str:
    """Twelve dead letters, the tenth of them held by a stream."""
    name = f"triage-{uuid4().hex[:10]}"
    admin.create_queue(name)

    async def fill() -> None:
        async with Bus(server.connection_string).client() as client:
            messages = [
                ServiceBusMessage(
                    json.dumps({"n": at}).encode(),
                    {"tenant": at, CLAIM_PROPERTY: "x"} if at == 9 else {"tenant": at},
                    f"m-{at}",
                    subject=f"kind {at % 2}",
                )
                for at in range(12)
            ]
            await bury(client, name, messages, REASONS)
            [number] = [
                each.sequence_number or 0
                for each in await peek_all(client, dead_letters_of(name))
                if each.message_id == "m-9"
            ]
            await defer(client, name, number)

    asyncio.run(fill())
    return name


async def defer(client: object, queue: str, number: int) -> None:
    from busway.client.service_bus_client import ServiceBusClient

    assert isinstance(client, ServiceBusClient)
    async with client.get_queue_receiver(dead_letters_of(queue)) as receiver:
        for message in await receiver.receive_messages(12, 2):
            if message.sequence_number == number:
                await receiver.defer_message(message)
            else:
                await receiver.abandon_message(message)


def lying(place: JobPlace, address: str) -> list[ServiceBusReceivedMessage]:
    async def work() -> list[ServiceBusReceivedMessage]:
        async with place.bus.client() as client:
            return await peek_all(client, address)

    return asyncio.run(work())


def names(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message.message_id) for message in messages)


def test_triage_tells_and_touches_nothing_then_moves_exactly_what_was_chosen(
    place: JobPlace, queue: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dead letters: groups, a dry run, fixes, one resubmission, and a second one that finds nothing left to do."""
    where = "deadLetterReason = 'BadTenant' and properties.tenant::int >= 2 or deadLetterReason = '<script>'"
    before = [(m.message_id, m.delivery_count) for m in lying(place, dead_letters_of(queue))]
    dry = run(place, DeadLetters((queue,), where, report=tmp_path, samples=2))
    assert [(m.message_id, m.delivery_count) for m in lying(place, dead_letters_of(queue))] == before
    assert lying(place, queue) == []

    found = dry.survey
    assert (found.total, found.chosen, found.held, found.group_count) == (12, 8, 1, 3)
    groups = [(g.keys["reason"], g.keys["fingerprint"], g.count, g.chosen) for g in found.groups]
    assert groups == [
        ("BadTenant", "tenant <n> of order <id> is unknown at <time>", 6, 4),
        ("<script>", "line <n>: <img src=x onerror=alert(<n>)>", 4, 4),
        ("TooOld", "it is too old", 2, 0),
    ]
    assert [each.message_id for each in found.groups[0].samples] == ["m-0", "m-1"]
    assert found.groups[0].samples[0].body_start == '{"n": 0}'
    assert found.breakdowns["subject"] == [("kind 0", 6, 4), ("kind 1", 6, 4)]
    assert found.breakdowns["age"] == [("< 1 hour", 12, 8)]
    assert len(found.breakdowns["description"]) == 11
    assert sum(slot.count for slot in found.slots) == 12
    assert dry.is_dry
    assert dry.outcomes == {}

    fixes = (Fix("subject", "'fixed'"), Fix("properties.tenant", "concat('t', properties.tenant::string)"),
             Fix(BODY, "concat(cast(body as string), '!')"), Fix("timeToLive", "interval 1 hour"))  # fmt: skip
    done = run(place, DeadLetters((queue,), where, fixes, resubmits=True, report=tmp_path, wait_s=1))
    assert done.outcomes == {"resubmitted": 7}
    assert done.is_complete
    moved = lying(place, queue)
    assert names(moved) == [f"m-{at}" for at in (2, 3, 4, 5, 6, 7, 8)]
    assert {m.application_properties["tenant"] for m in moved} == {f"t{at}" for at in range(2, 9)}
    assert {(m.subject, m.time_to_live_ms) for m in moved} == {("fixed", 3_600_000)}
    assert {m.body for m in moved} == {b'{"n": %d}!' % at for at in range(2, 9)}
    left = lying(place, dead_letters_of(queue))
    assert names(left) == ["m-0", "m-1", "m-10", "m-11", "m-9"]
    check_report(tmp_path)

    call = [
        "pipeline",
        "deadletters",
        queue,
        "--where",
        "deadLetterReason = 'BadTenant'",
        "--master",
        "local[2]",
    ]
    shell = Shell(capsys)
    told = shell.json(
        *call, "--connection-string", place.bus.connection_string, "--resubmit", "--by", "reason"
    )
    assert (told["total"], told["outcomes"]) == (5, {"resubmitted": 2})
    assert [group["keys"] for group in told["groups"]] == [
        {"reason": each} for each in ("BadTenant", "TooOld", "<script>")
    ]
    assert (place.bus.target.key or "?") not in shell.told
    assert names(lying(place, dead_letters_of(queue))) == ["m-10", "m-11", "m-9"]


def test_groups_plan_and_moves_speak_of_the_same_letters_though_spark_loses_its_blocks(
    place: JobPlace, spark: SparkSession, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters: an executor is lost behind the groups, and one more message has been dead-lettered meanwhile."""
    surveyed = deadletters.survey
    chosen: list[int] = []

    def survey_and_lose(*given: Any, **more: Any) -> Survey:
        found = surveyed(*given, **more)
        chosen.append(found.chosen)
        if len(chosen) == 1:
            asyncio.run(_bury_one(place, queue))
            context = spark.sparkContext._jsc.sc()
            for kept in context.getPersistentRDDs().keys().toSeq().mkString(",").split(","):
                context.unpersistRDD(int(kept), True)
        return found

    monkeypatch.setattr(deadletters, "survey", survey_and_lose)
    triage = run(place, DeadLetters((queue,), resubmits=True, wait_s=1.0))
    assert triage.outcomes == {RESUBMITTED: triage.survey.chosen - triage.survey.held}
    assert triage.survey.chosen == chosen[-1]


def test_a_condition_may_name_what_is_not_usually_browsed(place: JobPlace, queue: str) -> None:
    """Dead letters: columns are left out only where nobody misses them."""
    for where, chosen in (
        ("contentType is null and `to` is null", 12),
        ('to_json(struct(*)) like \'%"tenant":3%"entity":%\'', 1),
    ):
        assert run(place, DeadLetters((queue,), where)).survey.chosen == chosen


async def _bury_one(place: JobPlace, queue: str) -> None:
    async with place.bus.client() as client:
        await bury(client, queue, [ServiceBusMessage(b"late", message_id="late")])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--by", "colour"], "--by colour: name some of entity, reason"),
        (["--by", "reason,reason"], "each once"),
        (["--set", "colour='red'"], "--set colour: there is no such part of a message"),
        (["--set", "subject='a'", "--set", "Subject='b'"], "--set subject: it is given twice"),
        (["--conf", "nameless"], "--conf nameless: write it as NAME=VALUE"),
        (["--samples", "99"], "--samples"),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_sentence(
    capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    """Errors help: before Spark is started."""
    call = ["pipeline", "deadletters", "orders", "--connection-string", NOBODY_THERE, *options]
    assert sentence in " ".join(Shell(capsys)(*call, code=2).split())


def check_report(folder: Path) -> None:
    """A row for each dead letter of each run, and a page in which strangers' reasons are text."""
    dry, done = sorted(folder.glob("deadletters-*.parquet"))
    told = {row["messageId"]: row["done"] for row in pq.read_table(dry).to_pylist()}
    assert (told["m-2"], told["m-0"], told["m-9"]) == (
        "would be resubmitted",
        "untouched",
        "held by a stream",
    )
    rows = {row["messageId"]: row for row in pq.read_table(done).to_pylist()}
    assert len(rows) == 12
    assert (rows["m-2"]["done"], rows["m-11"]["done"]) == ("resubmitted", "untouched")
    assert rows["m-2"]["group"].endswith("BadTenant · tenant <n> of order <id> is unknown at <time>")
    assert json.loads(rows["m-2"]["properties"])["tenant"] == 2
    page = (folder / "deadletters.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("where", "fixes", "sentence"),
    [
        ("deadLetterReson = 'x'", (), "--where: A column, .* `deadLetterReson` cannot be resolved"),
        ("deliveryCount >", (), "--where: Syntax error"),
        ("deliveryCount + 1", (), "--where must be true or false for each dead letter; it is int."),
        (None, (Fix("subject", "nope(1)"),), "--set subject: .*`nope`"),
        (None, (Fix("subject", "properties.tenant"),), "--set subject must give text, not variant"),
        (None, (Fix(BODY, "deliveryCount"),), "--body must give string or binary, not int"),
        (None, (Fix("timeToLive", "'long'"),), "--set timeToLive must give milliseconds or an interval"),
    ],
)
def test_a_wrong_expression_is_a_sentence(
    place: JobPlace,
    admin: ServiceBusAdministrationClient,
    where: str | None,
    fixes: tuple[Fix, ...],
    sentence: str,
) -> None:
    """Errors help: which option, and what Spark says of it, before any dead letter is looked at."""
    if "empty" not in {each.name for each in admin.list_queues()}:
        admin.create_queue("empty")
    with pytest.raises(JobFailed, match=sentence) as caught:
        run(place, DeadLetters(("empty",), where, fixes, resubmits=True))
    assert "==" not in str(caught.value)


def test_a_fingerprint_masks_whatever_differs(spark: SparkSession) -> None:
    """Dead letters: also where little of a description tells that there is something to mask."""
    masked = {
        "it expired": "it expired",
        " Ünder  way\tor\nnot ": "Ünder way or not",
        "line\rend": "line end",
        "no abcdefab-abcd-ABCD-abcd-abcdefabcdef here": "no <id> here",
        "ask a.b@example.org": "ask <address>",
        "order 17 at 2026-11-15T09:00:00Z": "order <n> at <time>",
        "a-face-b": "a-face-b",
        None: "",
    }
    frame = spark.createDataFrame([(each,) for each in masked], "text string")
    rows = frame.select(fingerprint(frame["text"])).collect()
    assert [row[0] for row in rows] == list(masked.values())


def test_missing_entities_are_named(place: JobPlace, queue: str) -> None:
    """Errors help: an entity that is not there, and none at all."""
    with pytest.raises(
        JobFailed, match=r"^Could not browse 'nobody/.DeadLetterQueue': there is no such entity"
    ):
        run(place, DeadLetters(("nobody",), into=queue))
    with pytest.raises(JobFailed, match="There is no queue or topic 'nobody'"):
        run(place, DeadLetters(("nobody",)))
    with pytest.raises(JobFailed, match="Name at least one queue"):
        run(place, DeadLetters(("",)))


@pytest.mark.parametrize("text", ["subject", "=x", "nobody='x'", "properties.='x'", "subject=  "])
def test_a_fix_that_names_no_part_is_refused(text: str) -> None:
    """Errors help: NAME=EXPRESSION, and the names there are."""
    with pytest.raises(WrongFix, match="--set"):
        Fix.parse(text)


def test_a_fix_is_read_up_to_the_first_sign_of_equality() -> None:
    """Fixes: names whatever their case, expressions with signs of equality in them."""
    assert Fix.parse("SessionID = if(a = b, 'x', 'y')") == Fix("sessionId", "if(a = b, 'x', 'y')")
    assert Fix.parse("Properties.My.Name=1") == Fix("properties.My.Name", "1")


@pytest.mark.parametrize(("span_s", "slot_s"), [(0, 60), (3_600, 300), (86_400, 3_600), (10**9, 31_536_000)])
def test_a_stretch_of_time_has_at_most_so_many_slots(span_s: int, slot_s: int) -> None:
    """Charts: widths that people count in."""
    assert slot_seconds(span_s) == slot_s
