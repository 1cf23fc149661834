"""Events as rows in the plainest way, one after the other: what the columns of all at once are held against."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from busway.amqp.sections import AmqpMessage
from busway.client.messages import PARTITION_KEY
from busway_spark.eventhubs.columns import OFFSET, PUBLISHER, TOLD_ELSEWHERE, body_of, json_text
from busway_spark.eventhubs.options import ALL_COLUMNS, WantedColumns
from busway_spark.property_types import types_of

_TEXTS = pa.map_(pa.string(), pa.string())
_TYPES = {
    "body": pa.binary(),
    "sequenceNumber": pa.int64(),
    "enqueuedTime": pa.timestamp("us", tz="UTC"),
    "properties": _TEXTS,
    "systemProperties": _TEXTS,
}


def batch_of_messages(
    messages: list[AmqpMessage],
    numbers: list[int],
    times_ms: list[int],
    partition: str,
    wanted: WantedColumns = ALL_COLUMNS,
) -> pa.RecordBatch:
    rows = [
        _row(message, partition) | {"sequenceNumber": number, "enqueuedTime": at_ms * 1000}
        for message, number, at_ms in zip(messages, numbers, times_ms, strict=True)
    ]
    columns = [pa.array([row[name] for row in rows], _TYPES.get(name, pa.string())) for name in wanted.names]
    return pa.RecordBatch.from_arrays(columns, names=list(wanted.names))


def _row(message: AmqpMessage, partition: str) -> dict[str, object]:
    annotations = {str(name): value for name, value in (message.message_annotations or {}).items()}
    key, publisher = annotations.get(PARTITION_KEY), annotations.get(PUBLISHER)
    system = [(name, json_text(value)) for name, value in annotations.items() if name not in TOLD_ELSEWHERE]
    for field in () if message.properties is None else dataclasses.fields(message.properties):
        value = getattr(message.properties, field.name)
        if value is not None:
            system.append((field.name.replace("_", "-"), json_text(value)))
    application = message.application_properties or {}
    return {
        "body": body_of(message),
        "partition": partition,
        "offset": str(annotations.get(OFFSET)),
        "publisher": None if publisher is None else str(publisher),
        "partitionKey": None if key is None else str(key),
        "properties": [(str(name), json_text(value)) for name, value in application.items()],
        "systemProperties": system,
        "propertyTypes": types_of(application),
    }
