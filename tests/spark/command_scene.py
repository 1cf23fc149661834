"""What the commands of `busway pipeline` are run on, and what must hold when they have run: on any kind of master."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq

from busway.client.messages import ServiceBusMessage
from busway.journal import files as journal
from busway.rules.rule import Rule, SqlAction, SqlFilter
from busway_spark.pipeline.capture.capture_commit import BatchName
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import captured, data_files, events, numbers_in, writer
from tests.spark.captured_topic import CapturedTopic
from tests.spark.deadletter_rig import bury, dead_letters_of, peek_all
from tests.spark.flows import HUB, hub_bodies
from tests.spark.hub_traffic import expected
from tests.spark.journal_files import operation, write_journal
from tests.spark.scene import Scene

BEFORE_RULES = 60
AFTER_RULES = 20
LETTERS = 8
ORDERS = 30
#: Captured long ago, in small files.
OLD = "clicks"
LONG_AGO = datetime(2025, 1, 1, 9, tzinfo=UTC)
OLD_PARTITIONS = 2
OLD_FILES = 3
OLD_ROWS = 20
#: By columns alone, with an action, and by asking the broker's evaluator.
RULES = (
    Rule("some", SqlFilter("a = 'a' OR size > 2 OR sys.Label LIKE 'a%'")),
    Rule("mark", SqlFilter("EXISTS(b)"), SqlAction("SET seen = sys.MessageId; SET sys.Label = 'copy'")),
    Rule("asks", SqlFilter("10 / size > 1 OR a LIKE b")),
)
WHERE = "deadLetterReason = 'BadTenant' and properties.tenant::int >= 2"
FIXES = """--set "subject='fixed'" --set "properties.tenant=concat('t', properties.tenant::string)" """


class CommandScene:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._rig = scene.rig
        self._folder = scene.folder / "commands"
        self._lake = self._folder / "lake"
        self._connection = scene.connection
        self._hub = scene.filled(HUB)
        self._copy = scene.empty(HUB)
        self._topic = self._published()
        self._letters = self._buried()
        self._old = self._captured_long_ago()
        self._names: tuple[str, ...] = ()
        write_journal(self._folder / "journal", [_sent(number) for number in range(ORDERS)])

    # -- before

    def _published(self) -> CapturedTopic:
        """A subscription that was there from the beginning, and one whose rules began later."""
        topic = CapturedTopic(self._connection, self._lake, is_partitioned=True)
        topic.subscribe("live", *RULES)
        topic.publish(BEFORE_RULES)
        topic.subscribe("late", *RULES)
        topic.publish(AFTER_RULES)
        return topic

    def _buried(self) -> str:
        queue = self._rig.queue()
        messages = [
            ServiceBusMessage(b"%d" % at, {"tenant": at}, f"m-{at}", subject="raw") for at in range(LETTERS)
        ]
        reasons = [("BadTenant" if at % 2 else "TooOld", f"tenant {at} is bad") for at in range(LETTERS)]
        self._rig.on_bus(lambda client: bury(client, queue, messages, reasons))
        return queue

    def _captured_long_ago(self) -> list[dict[str, Any]]:
        """Many small files of an hour that is over."""
        sink = writer(self._lake, OLD)
        for number in range(OLD_FILES):
            name, rows = BatchName("query", number), range(OLD_ROWS * number, OLD_ROWS * (number + 1))
            lots = [events(rows, LONG_AGO, at) for at in range(OLD_PARTITIONS)]
            sink.commit([sink.write_batch(name, iter([lot])) for lot in lots], number)
        return captured(self._lake)

    # -- the commands

    def calls(self, master: str, server: RunningServer) -> list[list[str]]:
        folder, lake = self._folder, self._lake
        bus = f"--connection-string '{encrypted(server)}' --ca-file {server.ca_file}"
        triage = f'deadletters {self._letters} --where "{WHERE}" --report {folder}/triage {bus}'
        backfill = f"backfill {self._topic.name} late --from {lake} {bus}"
        replay = f"replay {lake} --entity {OLD} --into {self._copy} --speed max {bus}"
        calls = {
            "capture": f"capture {self._hub} {self._topic.name} --to {lake} {bus}",
            "compact": f"compact {lake}",
            "backfill": backfill,
            "backfill again": backfill,
            "triage": triage,
            "deadletters": f"{triage} --resubmit --wait 1 {FIXES}",
            "report": f"report --captured {lake} --journal {folder}/journal --sizes --out {folder}/report",
            "replay": f"{replay} --where 'sequenceNumber % 3 = 0'",
        }
        self._names = tuple(calls)
        return [shlex.split(f"pipeline {call} --json --master {master}") for call in calls.values()]

    # -- after

    def check(self, driver_told: Mapping[str, Any]) -> None:
        assert driver_told["code"].endswith(".zip/busway/__init__.py pure Python (not compiled)")
        for each in driver_told["commands"]:
            assert each["status"] == 0, each
        ended = zip(self._names, driver_told["commands"], strict=True)
        told = {name: json.loads(each["output"]) for name, each in ended}
        rows = captured(self._lake)
        self._check_capture(told["capture"], rows)
        self._check_compact(told["compact"], rows)
        self._check_backfill(told["backfill"], told["backfill again"])
        self._check_deadletters(told["triage"], told["deadletters"])
        self._check_report(told["report"])
        self._check_replay(told["replay"])

    def _check_capture(self, told: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        count = self._scene.count
        assert told["captured"] == {self._hub: count, self._topic.name: BEFORE_RULES + AFTER_RULES}
        bodies = [row["body"].decode() for row in rows if row["entity"] == self._hub]
        assert sorted(bodies) == expected(count // 2)
        ids = Counter(row["messageId"] for row in rows if row["entity"] == self._topic.name)
        assert ids == Counter(f"id-{at}" for at in range(1, BEFORE_RULES + AFTER_RULES + 1))

    def _check_compact(self, told: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        """The messages are the same ones, in one file for each partition."""
        assert (told["folders"], told["files_before"], told["files_after"]) == (
            OLD_PARTITIONS, OLD_PARTITIONS * OLD_FILES, OLD_PARTITIONS,
        )  # fmt: skip
        assert [row for row in rows if row["entity"] == OLD] == self._old
        files = [path for path in data_files(self._lake) if path.startswith(f"entity={OLD}/")]
        assert [numbers_in(self._lake / path) for path in files] == [
            list(range(OLD_FILES * OLD_ROWS))
        ] * OLD_PARTITIONS

    def _check_backfill(self, first: Mapping[str, Any], again: Mapping[str, Any]) -> None:
        """As if it had been there from the beginning; the second call found everything there."""
        assert (first["wanted"], first["captured"], first["known"]) == (BEFORE_RULES, BEFORE_RULES, 0)
        assert first["sent"] > 0
        assert (again["sent"], again["known"], again["is_done"]) == (0, first["sent"], True)
        live, late = self._topic.seen("live"), self._topic.seen("late")
        assert late == live, ("missing", live - late, "too much", late - live)

    def _check_deadletters(self, dry: Mapping[str, Any], done: Mapping[str, Any]) -> None:
        chosen = [at for at in range(LETTERS) if at % 2 and at >= 2]
        for told in (dry, done):
            assert (told["total"], told["chosen"], told["group_count"]) == (LETTERS, len(chosen), 2)
        assert (dry["dry_run"], dry["outcomes"]) == (True, {})
        assert (done["dry_run"], done["outcomes"]) == (False, {"resubmitted": len(chosen)})
        back = self._rig.peek(self._letters)
        assert [(each.message_id, each.subject, each.application_properties) for each in back] == [
            (f"m-{at}", "fixed", {"tenant": f"t{at}"}) for at in chosen
        ]
        left = self._rig.on_bus(lambda client: peek_all(client, dead_letters_of(self._letters)))
        assert {each.message_id for each in left} == {f"m-{at}" for at in range(LETTERS) if at not in chosen}
        self._check_triage(chosen)

    def _check_triage(self, chosen: list[int]) -> None:
        """A row for each dead letter of each run."""
        folder = self._folder / "triage"
        files = sorted(folder.glob("deadletters-*.parquet"))
        for file, done in zip(files, ("would be resubmitted", "resubmitted"), strict=True):
            assert {row["messageId"]: row["done"] for row in pq.read_table(file).to_pylist()} == {
                f"m-{at}": done if at in chosen else "untouched" for at in range(LETTERS)
            }
        assert "BadTenant" in (folder / "deadletters.html").read_text()

    def _check_report(self, told: Mapping[str, Any]) -> None:
        """Both sources are counted, and the figures lie beside the page."""
        counts = {(row["entity"], row["operation"]): row["count"] for row in told["operations"]}
        assert counts == {
            (OLD, "captured"): OLD_PARTITIONS * OLD_FILES * OLD_ROWS,
            (self._hub, "captured"): self._scene.count,
            (self._topic.name, "captured"): BEFORE_RULES + AFTER_RULES,
            ("orders", journal.SEND): ORDERS,
        }
        assert told["events"] == sum(counts.values())
        [size] = [row["sizeBytes"] for row in told["operations"] if row["entity"] == OLD]
        assert size == sum(len(row["body"]) for row in self._old)
        folder = self._folder / "report"
        assert pq.read_table(folder / "figures/operations.parquet").to_pylist() == told["operations"]
        assert "orders" in (folder / "report.html").read_text()

    def _check_replay(self, told: Mapping[str, Any]) -> None:
        """Out of compacted files, what the condition holds for."""
        wanted = Counter(row["body"].decode() for row in self._old if row["sequenceNumber"] % 3 == 0)
        assert (told["rows"], told["is_done"]) == (wanted.total(), True)
        assert hub_bodies(self._connection, self._copy) == wanted


def encrypted(server: RunningServer) -> str:
    """The connection string with which clients want TLS."""
    return server.connection_string.replace(";UseDevelopmentEmulator=true", "")


def _sent(number: int) -> dict[str, Any]:
    return operation(number, journal.SEND, "orders", sequenceNumber=number, sizeBytes=100)
