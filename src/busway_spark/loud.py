"""What whoever runs a job should know although it goes on: said by Spark's own logger, which ends in the output of
the driver and, where Spark collects what its Python workers log, there. Once in a process: Spark makes the
writer of a stream anew for each batch."""

from functools import lru_cache
from typing import Final

from pyspark.logger import PySparkLogger

LOGGER: Final = "busway_spark"


@lru_cache(maxsize=256)
def say_loudly(sentence: str) -> None:
    PySparkLogger.getLogger(LOGGER).warning(sentence)
