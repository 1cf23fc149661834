"""What executors need that have nothing of ours: code and a certificate authority. Without a session."""

from __future__ import annotations

import os
import pickle
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from busway_spark.eventhubs.options import BadOption, EventHubsOptions
from busway_spark.servicebus.options import WrongOption, read_options
from busway_spark.start import session, shipping
from busway_spark.start.shipping import CodeMissing, code_archive
from busway_spark.wire.bus import Bus, authority_file, authority_text
from tests.harness.running_server import RunningServer
from tests.spark.cluster import bare_python

CONNECTION = "Endpoint=sb://localhost:5671;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
#: Everything that travels to an executor is made of these.
IMPORTS = (
    "import busway_spark.eventhubs.source, busway_spark.servicebus.source, pyspark_eventhubs, pyspark_servicebus,"
    " busway.rules.evaluate, busway_spark.pipeline.captured.captured; import busway; print(busway.__file__,"
    " busway.compiled.status())"
)


def run(python: Path | str, path: Path | None, code: str = IMPORTS) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": "" if path is None else str(path)}
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, env=environment, check=False, cwd="/"
    )


def test_the_archive_is_all_that_an_executor_needs(tmp_path: Path) -> None:
    """An interpreter that lacks our packages imports them out of the archive, as Python sources."""
    python = bare_python(tmp_path / "bare")
    assert "No module named 'busway_spark'" in run(python, None).stderr
    archive = code_archive(tmp_path)
    done = run(python, archive)
    assert done.stdout.split(maxsplit=1) == [
        f"{archive}/busway/__init__.py",
        "pure Python (not compiled)\n",
    ], done


def test_an_executor_with_the_same_sources_compiled_uses_what_it_has(tmp_path: Path) -> None:
    """What the driver sent is what runs; only compiled twins of the very same sources may stand in for it."""
    installed = run(sys.executable, None).stdout.split(maxsplit=1)[1]
    archive = code_archive(tmp_path)
    assert run(sys.executable, archive).stdout.split(maxsplit=1) == [
        f"{archive}/busway/__init__.py",
        installed,
    ]
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(other, "w") as changed:
        for name in packed.namelist():
            more = b"\n#\n" if name == "busway/amqp/decode.py" else b""
            changed.writestr(name, packed.read(name) + more)
    assert "pure Python" in run(sys.executable, other).stdout


def test_the_archive_is_made_once_for_each_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name follows from what is in it; nothing compiled and nothing cached is."""
    first = code_archive(tmp_path)
    made = first.stat().st_mtime_ns
    assert code_archive(tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert code_archive(tmp_path / "elsewhere").read_bytes() == first.read_bytes()
    with zipfile.ZipFile(first) as packed:
        names = packed.namelist()
    assert {
        "busway/__init__.py",
        "busway_spark/start/session.py",
        "pyspark_servicebus.py",
        "defusedxml/common.py",
    } <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc")) or "_compiled" in name]
    monkeypatch.setattr(shipping, "MODULES", ())
    assert code_archive(tmp_path) != first
    assert len(list(tmp_path.glob("*.zip"))) == 2
    assert not list(tmp_path.glob("*.part"))


def test_what_cannot_be_packed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MODULES", ("there_is_none",))
    with pytest.raises(CodeMissing, match="there_is_none"):
        code_archive(tmp_path)


def test_the_archive_can_be_asked_for(tmp_path: Path) -> None:
    """For `spark-submit --py-files`."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "busway_spark"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert zipfile.is_zipfile(done.stdout.strip())
    assert Path(done.stdout.strip()).parent == tmp_path / "busway"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("master", "is_here", "is_one_process"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local[2,4]", True, True),
        ("local-cluster[2,1,700]", True, False),
        ("spark://127.0.0.1:7077", True, False),
        ("spark://localhost:7077", True, False),
        ("spark://bus.example:7077", False, False),
        ("spark://127.0.0.1:7077,other:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://cluster:6443", False, False),
    ],
)
def test_where_a_master_runs_follows_from_its_address(
    master: str, is_here: bool, is_one_process: bool
) -> None:
    """A driver that only listens on this machine would be lost to executors elsewhere."""
    assert (session._HERE.fullmatch(master) is not None) is is_here
    assert (session._ONE_PROCESS.fullmatch(master) is not None) is is_one_process


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> RunningServer:
    """Stopped at once: what is wanted is its certificate authority."""
    with RunningServer(tmp_path_factory.mktemp("tls")) as running:
        return running


def test_a_certificate_authority_travels_as_text(tls_server: RunningServer, tmp_path: Path) -> None:
    """The file is read where the query is planned; a process elsewhere makes its own of it."""
    ca_file = tls_server.ca_file
    hubs = EventHubsOptions.parse({"connectionString": CONNECTION, "name": "h", "caFile": ca_file})
    queues = read_options({"connectionString": CONNECTION, "queue": "q", "caFile": ca_file})
    jobs = Bus(CONNECTION, ca_file)
    pem = Path(ca_file).read_text()
    for given in (hubs.bus.ca_file, queues.ca_file, pickle.loads(pickle.dumps(jobs)).ca_file, pem):
        assert authority_text(given) == pem
        path = authority_file(given)
        assert path is not None
        assert path != Path(ca_file)
        assert path.read_text() == pem
        assert path.parent.stat().st_mode & 0o077 == 0
        assert ssl.create_default_context(cafile=path).cert_store_stats()["x509_ca"] >= 1
    assert "BEGIN" not in repr(hubs) + repr(queues) + repr(jobs)
    assert tmp_path.exists()


@pytest.mark.parametrize(
    "content", [None, "", "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"]
)
def test_a_wrong_certificate_authority_is_named(tmp_path: Path, content: str | None) -> None:
    """By its option and its file, before anything is planned."""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(WrongOption, match="caFile"):
        read_options({"connectionString": CONNECTION, "queue": "q", "caFile": str(path)})
    with pytest.raises(BadOption, match="caFile"):
        EventHubsOptions.parse({"connectionString": CONNECTION, "name": "h", "caFile": str(path)})
