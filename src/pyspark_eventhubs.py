"""Found by Spark for `format("eventhubs")`: every top-level module named pyspark_… with a DefaultSource is asked."""

from busway_spark.eventhubs.source import EventHubsSource


class DefaultSource(EventHubsSource):
    """The format's name is what the class says, not what it is called."""
