"""Hadoop's drivers, by which Spark itself reads and writes places: what they must be told, and how to get one.

PySpark brings none for stores of objects; they are some hundred megabytes, and must be of Hadoop's own version.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: As Hadoop says that there is none: by the scheme, or by the package of a driver that it knows by name.
_NO_DRIVER: Final = re.compile(
    r'No FileSystem for scheme:? "?(\w+)"?|Class org\.apache\.hadoop\.fs\.(s3a|azurebfs)\.\S+ not found'
)
_SCHEMES: Final = {"s3": "s3a", "azurebfs": "abfs"}
#: Under this name at Maven Central.
_DRIVERS: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}


def driver_sentence(text: str) -> str | None:
    """How to get the driver that Spark says it lacks; None when it says something else."""
    found = _NO_DRIVER.search(text)
    if found is None:
        return None
    said = (found[1] or found[2]).lower()
    scheme = _SCHEMES.get(said, said)
    name = _DRIVERS.get(scheme)
    if name is None:
        return f"Spark has no driver for {scheme}://."
    return (
        f"Spark has no driver for {scheme}://. Say --conf"
        f" spark.jars.packages=org.apache.hadoop:{name}:{hadoop_version()} and it is fetched from Maven Central, or"
        " put the jars into the folder 'jars' of Spark."
    )


def hadoop_settings() -> dict[str, str]:
    """For Spark: where a store is that is not Amazon's own. Keys its driver finds in the environment by itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ.get("AWS_REGION", "us-east-1"),
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
    }


@cache
def _spark_jars() -> tuple[str, ...]:
    """Empty where there is no Spark here: then it is another machine's matter."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    return tuple(path.name for path in folder.glob("*.jar")) if folder is not None else ()


def hadoop_version() -> str:
    """Of the Hadoop that comes with Spark: a driver must be of the same."""
    start, end = "hadoop-client-api-", ".jar"
    found = [name[len(start) : -len(end)] for name in _spark_jars() if name.startswith(start)]
    return found[0] if found else "VERSION"
