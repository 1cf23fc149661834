"""All programs, by name."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from tests.sdk.program import SOURCES, Program, run_tool

GO = SOURCES / "go"
JAVA = SOURCES / "java"
JMS = SOURCES / "jms"
RUST = SOURCES / "rust"
NODE = SOURCES / "javascript"
#: The newest, and one whose receivers are of the older kind.
JAVA_SERVICE_BUS = ("7.17.20", "7.13.4")


def _build_go(package: str, folder: Path) -> None:
    run_tool("go", "build", "-p", "1", "-o", str(folder / "program"), f"./{package}", folder=GO)


def _build_java(home: Path, sources: tuple[str, ...], folder: Path, version: str | None = None) -> None:
    chosen = [] if version is None else [f"-Dservicebus.version={version}"]
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}", *chosen]
    run_tool(*copy, folder=home)
    files = [str(path) for pattern in sources for path in sorted(home.glob(pattern))]
    run_tool("javac", "-nowarn", "-cp", f"{folder}/lib/*", "-d", str(folder / "classes"), *files, folder=home)


def _java_command(main: str, folder: Path) -> list[str]:
    # slf4j-simple says everything to standard error; warnings are enough.
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [
        "java",
        quiet,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-cp",
        os.pathsep.join((f"{folder}/classes", f"{folder}/lib/*")),
        main,
    ]


def _build_node(folder: Path) -> None:
    for path in (*sorted(NODE.glob("*.mjs")), NODE / "package.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    run_tool("npm", "install", "--no-audit", "--no-fund", "--silent", folder=folder)


def _node_command(program: str, folder: Path) -> list[str]:
    return ["node", str(folder / program)]


def _build_rust(binary: str, folder: Path) -> None:
    target = folder.with_name("rust-target")  # both programs have most of what they need in common
    settings = {"CARGO_TARGET_DIR": str(target), "CARGO_BUILD_JOBS": "1"}
    run_tool("cargo", "build", "--quiet", "--locked", "--package", binary, folder=RUST, environment=settings)
    shutil.copy2(target / "debug" / binary, folder / "program")


def _own(command: str, folder: Path) -> list[str]:
    return [str(folder / command)]


def _java_service_bus(name: str, version: str, ways: tuple[str, ...]) -> Program:
    return Program(
        name,
        "azure-messaging-servicebus",
        version,
        ("java", "javac", "mvn"),
        ("java/ServiceBus*.java",),
        ("java/Trial.java", "java/pom.xml"),
        partial(_build_java, JAVA, ("Trial.java", "ServiceBus*.java"), version=version),
        partial(_java_command, "ServiceBusProgram"),
        ways=ways,
    )


def _jms(name: str, version: str, main: str, ways: tuple[str, ...]) -> Program:
    return Program(
        name,
        "qpid-jms-client" if main == "QpidProgram" else name,
        version,
        ("java", "javac", "mvn"),
        (f"jms/{main}.java", "jms/Jms*.java"),
        ("java/Trial.java", "jms/pom.xml"),
        partial(_build_java, JMS, ("../java/Trial.java", "*.java")),
        partial(_java_command, main),
        entities=("queue", "topic"),
        ways=ways,
    )


def _rust(name: str, sdk: str, version: str, ways: tuple[str, ...], entities: tuple[str, ...]) -> Program:
    binary = name.removeprefix("rust-").replace("-", "_")
    return Program(
        name,
        sdk,
        version,
        ("cargo",),
        (f"rust/{binary}/src/*.rs",),
        ("rust/trial/src/lib.rs", "rust/Cargo.*", f"rust/{binary}/Cargo.toml"),
        partial(_build_rust, binary),
        partial(_own, "program"),
        entities=entities,
        ways=ways,
    )


PROGRAMS = (
    Program(
        "go-service-bus",
        "azservicebus",
        "1.11.0",
        ("go",),
        ("go/servicebus/*.go",),
        ("go/program/*.go", "go/go.mod"),
        partial(_build_go, "servicebus"),
        partial(_own, "program"),
    ),
    Program(
        "go-event-hubs",
        "azeventhubs",
        "2.0.2",
        ("go",),
        ("go/eventhubs/*.go",),
        ("go/program/*.go", "go/go.mod"),
        partial(_build_go, "eventhubs"),
        partial(_own, "program"),
        entities=("hub",),
    ),
    _java_service_bus("java-service-bus", JAVA_SERVICE_BUS[0], ("loopback", "tls", "websocket")),
    # It does not know the emulator's switch.
    _java_service_bus("java-service-bus-older", JAVA_SERVICE_BUS[1], ("tls", "websocket")),
    Program(
        "java-event-hubs",
        "azure-messaging-eventhubs",
        "5.21.3",
        ("java", "javac", "mvn"),
        ("java/EventHubs*.java",),
        ("java/Trial.java", "java/pom.xml"),
        partial(_build_java, JAVA, ("Trial.java", "EventHubs*.java")),
        partial(_java_command, "EventHubsProgram"),
        entities=("hub",),
    ),
    _jms("qpid-jms", "2.9.0", "QpidProgram", ("loopback", "tls", "websocket")),
    _jms("azure-servicebus-jms", "2.1.0", "AzureProgram", ("loopback", "tls")),
    Program(
        "javascript-service-bus",
        "@azure/service-bus",
        "7.9.5",
        ("node", "npm"),
        ("javascript/service_bus_*.mjs",),
        ("javascript/*.mjs", "javascript/package.json"),
        _build_node,
        partial(_node_command, "service_bus_program.mjs"),
    ),
    Program(
        "javascript-event-hubs",
        "@azure/event-hubs",
        "6.0.4",
        ("node", "npm"),
        ("javascript/event_hubs_program.mjs",),
        ("javascript/*.mjs", "javascript/package.json"),
        _build_node,
        partial(_node_command, "event_hubs_program.mjs"),
        entities=("hub",),
    ),
    _rust(
        "rust-event-hubs", "azure_messaging_eventhubs", "0.16.0", ("loopback", "tls", "websocket"), ("hub",)
    ),
    # It knows no address but NAMESPACE.servicebus.windows.net, which only the certificate for a network has.
    _rust("rust-service-bus", "azure_messaging_servicebus", "0.21.0", ("tls",), ("queue", "topic")),
)
