"""The start and the end of a session, so that an archive of Java's classes has what every Java of the tests loads
(`class_archive`). Nothing is run in it: an archive of all that tests load costs Java twice as much to write, and
gives a start nothing more.

python -m tests.spark.class_training
"""

from __future__ import annotations

from typing import Any

from busway_spark import spark_session

_WAIT_S_MAX = 120.0


def main() -> None:
    spark = spark_session(
        "training",
        master="local[2]",
        config={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
    )
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    # Java writes the archive when it ends, and it ends when nobody speaks to it any more.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WAIT_S_MAX)


if __name__ == "__main__":
    main()
