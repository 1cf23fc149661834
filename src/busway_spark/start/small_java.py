"""What Java is told for a driver whose streams rest for most of the time: to give back what it does not use.

The collector that Java takes by itself lets a heap grow as far as it may, since it collects late. The serial one
keeps it in proportion to what lives. Two collectors are refused by Java, so none is chosen where somebody else has
chosen one: in the settings of the job, in the environment, or in `spark-defaults.conf`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Before `spark.driver.extraJavaOptions`, which stays what others have made it.
JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_GIVES_BACK: Final = "-XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
_SERIAL: Final = "-XX:+UseSerialGC"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_ENVIRONMENT: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def small_java(config: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session; those that are given win."""
    is_chosen = any(_COLLECTOR.search(text) for text in _told(config))
    ours = {JAVA_OPTIONS: _GIVES_BACK if is_chosen else f"{_SERIAL} {_GIVES_BACK}"}
    return {**ours, **config}


def _told(config: Mapping[str, str]) -> Iterator[str]:
    yield from config.values()
    yield from (os.environ.get(name, "") for name in _ENVIRONMENT)
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if folder:
        with suppress(OSError):
            yield (Path(folder) / "spark-defaults.conf").read_text(errors="replace")
