"""One spelling of each place for us and for Spark, and sentences where something is missing."""

from __future__ import annotations

import pytest

from busway_spark.pipeline.capture.capture import CaptureOptions, _checkpoint, _stopped
from busway_spark.pipeline.captured.capture_root import CaptureRoot, spark_location
from busway_spark.pipeline.job import JobFailed, driver_sentence, hadoop_settings, hadoop_version


@pytest.mark.parametrize("spelled", ["s3://lake/x", "s3a://lake/x/", "S3A://lake/x", "s3n://lake/x"])
def test_a_place_has_one_spelling(spelled: str) -> None:
    """Places: however a bucket is written, our own client and Spark go to the same one."""
    root = CaptureRoot(spelled)
    assert root.location == "s3://lake/x"
    assert root.spark_location == "s3a://lake/x"


def test_checkpoints_are_spelled_as_spark_does() -> None:
    """Places: beside the data, or where --checkpoint says."""
    options = CaptureOptions(("orders",), "s3://lake/x")
    root = CaptureRoot(options.root)
    assert _checkpoint(root, "orders", options) == "s3a://lake/x/_checkpoints/entity=orders"
    elsewhere = CaptureOptions(("orders",), "s3://lake/x", checkpoint="s3://other/y/")
    assert _checkpoint(root, "orders", elsewhere) == "s3a://other/y/entity=orders"
    here = CaptureOptions(("orders",), "s3://lake/x", checkpoint="/var/lib/capture/")
    assert _checkpoint(root, "orders", here) == "/var/lib/capture/entity=orders"


@pytest.mark.parametrize(
    "spelled", ["gs://lake/x", "abfss://lake@account.dfs.core.windows.net/x", "hdfs://name/x"]
)
def test_other_places_are_spelled_alike_everywhere(spelled: str) -> None:
    """Places: only Amazon's store has two names."""
    assert CaptureRoot(spelled).location == spark_location(spelled) == spelled


def test_a_uri_without_a_bucket_is_refused() -> None:
    """Places: a clear sentence."""
    with pytest.raises(JobFailed, match="names no bucket"):
        _ = CaptureRoot("s3:///lake").objects


@pytest.mark.parametrize("given", ["s3://key:secret@lake/x", "s3://lake/x?endpoint_override=127.0.0.1:9000"])
def test_keys_and_endpoints_do_not_belong_into_a_place(given: str) -> None:
    """Places: they would be ignored, or end up in logs; the sentence does not repeat them."""
    with pytest.raises(JobFailed, match="come from the environment") as failure:
        _ = CaptureRoot(given).objects
    assert "secret" not in str(failure.value)
    assert "s3://lake/x" in str(failure.value)


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
    ],
)
def test_a_missing_driver_is_told_with_the_way_to_get_it(said: str) -> None:
    """Places: the driver must be of the Hadoop that comes with Spark, so its version is looked up."""
    assert hadoop_version().startswith("3.")
    sentence = str(_stopped("orders", "s3a://lake", said))
    assert f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}" in sentence
    assert driver_sentence("There is no room left") is None


def test_spark_hears_of_a_store_that_is_not_amazons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places: AWS_ENDPOINT_URL leads Spark's driver as it leads our client."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    assert hadoop_settings() == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    settings = hadoop_settings()
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
