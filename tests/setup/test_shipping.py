"""What others get of Busway: its wheels, the steps of the container's image and of the service, its licence."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.setup.test_installing import ROOT, fresh_clone

CONTAINERFILE = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
UNIT = (ROOT / "packaging" / "busway.service").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: Where both install it, and where both keep its data.
PREFIX, DATA = "/opt/busway", "/var/lib/busway"
#: Of the standard text, without white space.
LICENCE_DIGEST = "ddacef491153f45022f5619519bb2016374a8c36e75153768493f45fb38d7992"
MESSAGE = """
import os
from azure.servicebus import ServiceBusClient, ServiceBusMessage
with ServiceBusClient.from_connection_string(os.environ["BUSWAY_CONNECTION_STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("shipped"))
    with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
        for message in receiver.receive_messages():
            receiver.complete_message(message)
            print(message)
"""


def instructions(name: str) -> list[str]:
    """Of the Containerfile, in order; an argument list as one line."""
    found = re.findall(rf"^{name} +(.*)$", CONTAINERFILE, re.MULTILINE)
    return [shlex.join(json.loads(text)) if text.startswith("[") else text for text in found]


def of_unit(key: str) -> str:
    (found,) = re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)
    return str(found)


# -- quick looks


def test_the_licence_is_the_standard_text_and_named_in_the_metadata() -> None:
    """Licence: Apache-2.0, word for word."""
    words = "".join((ROOT / "LICENSE").read_text().split())
    assert hashlib.sha256(words.encode()).hexdigest() == LICENCE_DIGEST
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE"]


def test_a_wheel_takes_sources_only() -> None:
    """Shipping: every package and module of src, and nothing beside it."""
    listed = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    there = {f"src/{path.name}" for path in (ROOT / "src").iterdir() if path.name != "__pycache__"}
    assert listed == {name for name in there if not name.endswith(".egg-info")}


def test_the_image_runs_without_rights_on_one_volume_and_is_asked_for_its_health() -> None:
    """Container: non-root, one volume, a health check, and a slim base."""
    assert instructions("USER") == ["10001"]
    assert instructions("VOLUME") == [DATA]
    assert all("-slim" in image for image in instructions("FROM"))
    (check,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert json.loads(check) == [f"{PREFIX}/bin/busway", "health", "--data", DATA]
    assert instructions("ENTRYPOINT") == [f"{PREFIX}/bin/busway serve --data {DATA}"]


def test_the_service_starts_what_the_image_starts() -> None:
    """Service: the same folder, program and data, and no rights but to bind low ports."""
    assert of_unit("ExecStart") == f"{PREFIX}/bin/busway serve --data {DATA} $BUSWAY_OPTIONS"
    assert of_unit("StateDirectory") == Path(DATA).name
    assert of_unit("DynamicUser") == "yes"
    assert of_unit("CapabilityBoundingSet") == "CAP_NET_BIND_SERVICE"
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert f"packaging/install.sh {PREFIX} dist/busway-*.whl" in page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Service: `systemd-analyze verify`, with a program that exists."""
    unit = tmp_path / "busway.service"
    unit.write_text(UNIT.replace(f"{PREFIX}/bin/busway", str(Path(sys.executable).with_name("busway"))))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# -- the real thing: a fresh clone, through the image's own steps


class Shipped:
    def __init__(self, clone: Path, prefix: Path) -> None:
        self.clone = clone
        self.prefix = prefix
        self.data = prefix.with_name("data")

    def command(self, text: str) -> list[str]:
        """One of the Containerfile's or the unit's, with our folders in the place of theirs."""
        here = text.replace(PREFIX, str(self.prefix)).replace(DATA, str(self.data))
        return shlex.split(here.replace("$BUSWAY_OPTIONS", ""))

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        """Nothing of this repository is in its way: neither its folder nor its environment."""
        ports = {"BUSWAY_PORT": "0", "PATH": "/usr/bin:/bin", "HOME": str(self.prefix.parent)}
        server = subprocess.Popen(self.command(command), cwd=self.prefix.parent, env=ports)
        try:
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The steps of the image that need no container: all but the base image, apt-get and useradd."""
    clone = fresh_clone(tmp_path_factory.mktemp("clone"))
    prefix = tmp_path_factory.mktemp("prefix") / "busway"
    steps = [step for step in instructions("RUN") if not step.startswith(("apt-get", "useradd"))]
    assert len(steps) == 2
    for step in steps:
        subprocess.run(["sh", "-c", step.replace(PREFIX, str(prefix))], cwd=clone, check=True)
    return Shipped(clone, prefix)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "command", [*instructions("ENTRYPOINT"), of_unit("ExecStart")], ids=["image", "service"]
)
def test_what_was_installed_serves_a_message(shipped: Shipped, command: str) -> None:
    """Shipping: install, start, ask for its health, send and receive with the SDK, stop."""
    busway = str(shipped.prefix / "bin" / "busway")
    with shipped.serving(command):
        subprocess.run(shipped.command(of_unit("ExecStartPost")), check=True)
        told = subprocess.run(
            [busway, "connection-string", "--data", shipped.data], capture_output=True, text=True, check=True
        )
        environment = {**os.environ, "BUSWAY_CONNECTION_STRING": told.stdout.strip()}
        subprocess.run([busway, "queue", "create", "orders"], env=environment, check=True)
        done = subprocess.run(
            [sys.executable, "-c", MESSAGE], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "shipped\n"
        subprocess.run([busway, "queue", "delete", "orders"], env=environment, check=True)
    asked = subprocess.run([busway, "health", "--data", shipped.data], capture_output=True, text=True)
    assert asked.returncode == 1
    assert "Not healthy" in asked.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_wheels_hold_what_they_should(shipped: Shipped) -> None:
    """Shipping: licence and metadata in both, compiled modules in one, tests and byte code in none."""
    (compiled,) = (shipped.clone / "dist").glob("*.whl")
    (pure,) = (shipped.clone / "dist" / "pure").glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert not compiled.name.endswith("-any.whl")
    for wheel in (compiled, pure):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (metadata,) = [name for name in names if name.endswith("/METADATA")]
            assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert {name.split("/")[0] for name in names} <= {
            "busway", "busway_spark", "busway_pytest.py", "pyspark_eventhubs.py", "pyspark_servicebus.py",
            metadata.split("/")[0],
        }  # fmt: skip
        assert [name for name in names if "__pycache__" in name or "/tests/" in name] == []
        assert any("/_compiled/" in name for name in names) is (wheel is compiled)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_installed_stale_twin_never_runs(shipped: Shipped) -> None:
    """Shipping: `compiled` as installed; with one changed source beside it the sources run, changed back the twin."""
    busway = str(shipped.prefix / "bin" / "busway")

    def version() -> str:
        return subprocess.run([busway, "--version"], capture_output=True, text=True, check=True).stdout

    assert version().endswith(", compiled\n")
    (source,) = shipped.prefix.glob("lib/python*/site-packages/busway/message/message.py")
    before = source.read_bytes()
    source.write_bytes(before + b"\n# edited\n")
    assert "pure Python (the compiled modules are stale" in version()
    source.write_bytes(before)
    assert version().endswith(", compiled\n")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_wheel_is_not_built_from_a_stale_twin(shipped: Shipped) -> None:
    """Shipping: compiled modules of other sources do not get into a wheel."""
    source = shipped.clone / "src" / "busway" / "message" / "message.py"
    before = source.read_bytes()
    source.write_bytes(before + b"\n# edited\n")
    command = [".venv/bin/python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "stale", "."]
    try:
        done = subprocess.run(
            command,
            cwd=shipped.clone,
            env={**os.environ, "BUSWAY_WHEEL": "compiled"},
            capture_output=True,
            text=True,
        )
    finally:
        source.write_bytes(before)
    assert done.returncode != 0
    assert "missing or stale" in done.stdout + done.stderr
    assert list(shipped.clone.glob("stale/*.whl")) == []
