"""Where captured files may lie, spelled as Busway's own readers and as Spark spell it.

A directory, or a URI. Stores of objects (s3://, gs://, abfs://) are spoken to by `object_store`, others (hdfs://,
file://) by Arrow. Hadoop calls Amazon's store s3a, everybody else s3: both are taken, and mean the same place.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from busway_spark.pipeline.job import JobFailed

SCHEME_MARK: Final = "://"
#: As we spell it → as Hadoop does.
_HADOOP: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_OURS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
#: The driver of a scheme: in a jar of this name, and under this name at Maven Central.
_DRIVERS: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}


def our_location(location: str) -> str:
    """One spelling for each place. Raises JobFailed where there is none."""
    if not location.strip():
        raise JobFailed("The place of captured files has no name.")
    if SCHEME_MARK not in location:
        return str(Path(location).expanduser().resolve())
    scheme, rest = location.split(SCHEME_MARK, 1)
    return f"{_OURS.get(scheme.lower(), scheme.lower())}{SCHEME_MARK}{rest.rstrip('/')}"


def spark_location(location: str) -> str:
    """The same place as Spark wants to hear it."""
    if SCHEME_MARK not in location:
        return location.rstrip("/")
    scheme, rest = our_location(location).split(SCHEME_MARK, 1)
    return f"{_HADOOP.get(scheme, scheme)}{SCHEME_MARK}{rest}"


def object_place(location: str) -> tuple[str, str, str] | None:
    """Scheme, bucket (or what stands for it) and the path in it; None for what is no store of objects."""
    if SCHEME_MARK not in location:
        return None
    parts = urlsplit(location, allow_fragments=False)
    if parts.scheme not in _HADOOP:
        return None
    if not parts.netloc:
        raise JobFailed(f"'{location}' names no bucket: {parts.scheme}://BUCKET/PATH.")
    return parts.scheme, parts.netloc, parts.path.strip("/")


def require_driver(location: str, packages: str = "") -> None:
    """Raises JobFailed where Spark has no driver for a place, with the way to get it. `packages`: those that Spark
    was told to fetch."""
    scheme = spark_location(location).split(SCHEME_MARK, 1)[0] if SCHEME_MARK in location else ""
    name = _DRIVERS.get(scheme)
    jars = _spark_jars()
    if name is None or name in packages or not jars or any(each.startswith(f"{name}-") for each in jars):
        return
    raise JobFailed(
        f"Spark has no driver for {scheme}://. Give it one: --conf"
        f" spark.jars.packages=org.apache.hadoop:{name}:{hadoop_version()} (it is fetched from Maven Central), or put"
        " the jars into the folder 'jars' of Spark. Or keep checkpoints elsewhere, with --checkpoint."
    )


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
