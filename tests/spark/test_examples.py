"""The examples are run as they stand, and the page of the formats names what there is."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from busway_spark.bodies.body_options import FORMATS, POLICIES
from busway_spark.eventhubs.options import KNOWN, PORTED, REFUSED, SCHEMA
from busway_spark.servicebus import writer
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.options import KNOWN as SERVICEBUS_KNOWN
from busway_spark.servicebus.options import MODES, read_options
from busway_spark.servicebus.writer import detects_duplicates, warn_if_rows_can_repeat
from tests.harness.running_server import RunningServer
from tests.spark.servicebus_rig import ServiceBusRig

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "spark"
PAGE = (ROOT / "docs" / "how-to" / "spark.md").read_text()


@pytest.mark.parametrize("name", ["clicks_to_insights.py", "orders_exactly_once.py"])
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    name: str,
    spark: SparkSession,
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session that runs already, which is the one that `spark_session()` gives: about 10 s each."""
    text = (EXAMPLES / name).read_text()
    assert f".venv/bin/busway exec --data data -- .venv/bin/python examples/spark/{name}" in text
    assert text.count("# %%") >= 10
    monkeypatch.setenv("BUSWAY_CONNECTION_STRING", server.connection_string)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    shown = capsys.readouterr().out
    assert "120 clicks counted" in shown or "0 messages are left in the queue." in shown
    assert spark.range(3).count() == 3, "the session lives on"


@pytest.mark.skipif(find_spec("grpc") is None, reason="make setup-spark installs what spark-pipelines needs")
@pytest.mark.long
def test_the_declarative_pipeline_makes_its_tables(server: RunningServer, tmp_path: Path) -> None:
    """Starts its own JVM: about 40 s on a quiet machine."""
    run = EXAMPLES / "clicks_pipeline" / "run.py"
    assert "python examples/spark/clicks_pipeline/run.py" in run.read_text()
    hub = f"clicks-{uuid4().hex[:8]}"
    done = subprocess.run(
        [sys.executable, str(run), str(tmp_path / "clicks")],
        env={**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string, "CLICKS_HUB": hub},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "The table clicks has 40 rows." in done.stdout
    assert re.findall(r"page (\d): 10 clicks by \d users", done.stdout) == ["0", "1", "2", "3"]
    key = re.search("SharedAccessKey=([^;]+)", server.connection_string)
    assert key is not None
    assert key.group(1) not in done.stdout + done.stderr


# -- the page


def named(section: str) -> set[str]:
    """The first cells of the tables below a heading, up to the next of its kind."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def columns(section: str) -> dict[str, str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    table = text.partition("| Column | Type | Written |\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE))


def test_the_page_names_every_option_and_column() -> None:
    hubs = {field.name: field.dataType.simpleString() for field in SCHEMA.fields}
    assert columns('`format("eventhubs")`') == hubs
    assert named('`format("eventhubs")`') == {*KNOWN, *PORTED, *hubs}
    assert all(f"`{name}`" in PAGE for name in REFUSED)
    for name, (_, meaning) in PORTED.items():
        assert f"| `{name}` | {meaning} |" in PAGE
    options = read_options({"connectionString": "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=a2V5"})
    messages = {field.name: field.dataType.simpleString() for field in readable_schema(options).fields}
    assert columns('`format("servicebus")`') == messages
    assert named('`format("servicebus")`') == {*SERVICEBUS_KNOWN, *MODES, *messages}
    assert named("Bodies as columns") == {*FORMATS, *POLICIES, "bodyFormat", "badRecords"}


# -- the warning that rows can arrive twice


def test_rows_that_can_arrive_twice_are_warned_about(
    spark: SparkSession, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: said wherever rows cannot be staged, also over TLS and where nobody tells whether duplicates are
    detected. Only rows that bring ids, for an entity that detects duplicates, need no warning."""
    rig = ServiceBusRig(spark, server.connection_string)
    plain, careful = rig.queue(), rig.queue({"RequiresDuplicateDetection": True})
    said: list[str] = []
    monkeypatch.setattr(writer, "say_loudly", said.append)
    with_ids, without = (
        StructType().add("body", "binary").add("messageId", "string"),
        StructType().add("body", "binary"),
    )
    encrypted = server.connection_string.replace(";UseDevelopmentEmulator=true", "")
    tls = {"connectionString": encrypted, "caFile": server.ca_file}
    _, sends_only = rig.key("Send")
    for schema, options in (
        (with_ids, {"queue": plain}),
        (with_ids, {"queue": plain, **tls}),
        (without, {"queue": careful, **tls}),
        (with_ids, {"queue": careful, "connectionString": sends_only}),
        (with_ids, {"queue": "no-such-queue"}),
        (with_ids, {}),
    ):
        warn_if_rows_can_repeat(schema, read_options(rig.options(**options)))
        assert "at least once" in said.pop(), options
    for options in ({"queue": careful}, {"queue": careful, **tls}):
        assert detects_duplicates(read_options(rig.options(**options))) is True
        warn_if_rows_can_repeat(with_ids, read_options(rig.options(**options)))
    assert said == []
