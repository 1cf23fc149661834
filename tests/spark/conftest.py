"""One session of Spark and one real server for all tests of the formats. Without the extra `spark` there are none."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from tests.harness.running_server import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
#: Tests of this folder need the extra.
collect_ignore_glob = [] if find_spec("pyspark") is not None else ["test_*.py"]
#: Files with few and long tests come first, so that at the end no process works alone.
LONG = (
    "test_cluster",
    "test_faults",
    "test_job_kills",
    "test_claim_crashes",
    "test_refusals",
    "test_servicebus_stream",
    "test_backfill",
)
if not collect_ignore_glob:
    from tests.spark.class_archive import FEW_ROWS, SHORT_LIFE, java_options

    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIFE)
    # Before Java starts: what plans queries has its environment.
    os.environ["BUSWAY_CONNECTIONS"] = str(Path(gettempdir()) / f"busway-connections-{uuid4().hex}.toml")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{java_options()} {FEW_ROWS}")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(FOLDER / "warm_workers"), os.environ.get("PYTHONPATH")))
    )
#: A test that is stopped inside of a call leaves its answer in the connection to Java: whoever uses the session next
#: gets the answers of others. So only what hangs for good is stopped.
TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def warm_forks() -> Iterator[None]:
    """Python processes of streams are forks of one that has imported everything, also those of other drivers."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as changed:
        address = f"{folder}/socket"
        command = [sys.executable, "-P", "-m", "warm_forks", address]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as forks:
            changed.setenv("BUSWAY_TESTS_WARM_FORKS", address)
            yield
            forks.communicate()


@pytest.fixture(scope="session")
def spark(warm_forks: None) -> Iterator[SparkSession]:  # noqa: ARG001
    from busway_spark import spark_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = spark_session(
            "busway-tests",
            master="local[2]",
            config={
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.memory": "1g",
                "spark.sql.streaming.metricsEnabled": "false",
            },
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        Path(os.environ["BUSWAY_CONNECTIONS"]).unlink(missing_ok=True)
    # Handles of Java objects end here: inside of a later import their end confuses Python 3.11's parser.
    gc.collect()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("bus")) as running:
        yield running


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    """New for each test: the server ends connections that rest for minutes."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


@pytest.fixture
def hub(admin: ServiceBusAdministrationClient) -> str:
    """A new hub with two partitions."""
    name = f"hub-{uuid4().hex[:8]}"
    admin.hubs.create(name, {"PartitionCount": 2})
    return name


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
