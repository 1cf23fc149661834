"""Where captured files may lie, spelled as Busway's own readers and as Spark spell it.

A directory, or a URI. Stores of objects (s3://, gs://, abfs://) are spoken to by `object_store`, others (hdfs://,
file://) by Arrow. Hadoop calls Amazon's store s3a, everybody else s3: both are taken, and mean the same place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from busway_spark.pipeline.job import JobFailed

SCHEME_MARK: Final = "://"
#: As we spell it → as Hadoop does.
_HADOOP: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_WITHOUT_USERS: Final = ("s3", "gs")
_OURS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


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
    if parts.query or (parts.scheme in _WITHOUT_USERS and "@" in parts.netloc):
        raise JobFailed(
            f"'{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}' is enough: keys, regions and endpoints"
            " come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL …)."
        )
    return parts.scheme, parts.netloc, parts.path.strip("/")
