"""What tests of `format("servicebus")` do to the bus beside Spark: through the blocking forms of our client."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.atom_entries import KeyRule
from busway.client.entity_properties import Value
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.service_bus_client import ServiceBusClient

T = TypeVar("T")


class BusRig:
    """What needs no session of Spark in this process."""

    def __init__(self, connection_string: str) -> None:
        self.connection_string = connection_string

    def administration(self) -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(self.connection_string)

    def queue(self, properties: Mapping[str, Value] | None = None) -> str:
        """A new one: its name."""
        name = f"queue-{uuid4().hex[:12]}"
        with self.administration() as administration:
            administration.create_queue(name, properties)
        return name

    def key(self, *rights: str) -> tuple[str, str]:
        """A new key of the namespace with these rights: its name and its connection string."""
        name, secret = f"key-{uuid4().hex[:12]}", "a2V5LWtleS1rZXkta2V5LWtleS1rZXkta2V5LWtleS0="
        with self.administration() as administration:
            administration.put_key_rule(KeyRule(name, rights, secret, secret))
        head = self.connection_string.partition(";SharedAccessKeyName=")[0]
        tail = ";UseDevelopmentEmulator=true" if "UseDevelopmentEmulator" in self.connection_string else ""
        return name, f"{head};SharedAccessKeyName={name};SharedAccessKey={secret}{tail}"

    def on_bus(self, work: Callable[[ServiceBusClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with ServiceBusClient.from_connection_string(self.connection_string) as client:
                return await work(client)

        return asyncio.run(run())

    def send(self, entity: str, messages: list[ServiceBusMessage]) -> None:
        async def work(client: ServiceBusClient) -> None:
            async with client.get_queue_sender(entity) as sender:
                await sender.send_messages(messages)

        self.on_bus(work)

    def send_numbered(self, entity: str, count: int, first: int = 0) -> None:
        self.send(entity, [ServiceBusMessage(str(first + at).encode()) for at in range(count)])

    def receive(
        self, entity: str, count: int = 1_000, wait_s: float = 0.3
    ) -> list[ServiceBusReceivedMessage]:
        """Takes and deletes what is available."""

        async def work(client: ServiceBusClient) -> list[ServiceBusReceivedMessage]:
            async with client.get_queue_receiver(entity, receive_mode=RECEIVE_AND_DELETE) as receiver:
                return await receiver.receive_messages(count, wait_s)

        return self.on_bus(work)

    def peek(self, entity: str) -> list[ServiceBusReceivedMessage]:
        return self.on_bus(lambda client: client.get_management(entity).peek_messages(250))

    def peek_all(self, entity: str) -> list[ServiceBusReceivedMessage]:
        async def work(client: ServiceBusClient) -> list[ServiceBusReceivedMessage]:
            management = client.get_management(entity)
            found: list[ServiceBusReceivedMessage] = []
            while page := await management.peek_messages(
                250, sequence_number=(found[-1].sequence_number or 0) + 1 if found else 0
            ):
                found += page
            return found

        return self.on_bus(work)


class ServiceBusRig(BusRig):
    def __init__(self, spark: SparkSession, connection_string: str, claim_operations: str = "auto") -> None:
        super().__init__(connection_string)
        self.spark = spark
        #: By which operations streams claim.
        self.claim_operations = claim_operations

    def options(self, **options: Any) -> dict[str, str]:
        given = {"connectionString": self.connection_string, **options}
        return {name: str(value) for name, value in given.items()}

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format("servicebus").options(**self.options(**options)).load()

    def read_stream(self, **options: Any) -> DataFrame:
        given = self.options(claimOperations=self.claim_operations, **options)
        return self.spark.readStream.format("servicebus").options(**given).load()

    def write(self, rows: DataFrame, **options: Any) -> None:
        rows.write.format("servicebus").mode("append").options(**self.options(**options)).save()

    def run_now(
        self, rows: DataFrame, checkpoint: str, each: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        """Everything that is available, batch by batch, to the end. Raises what the query failed with."""
        writer = rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(each)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query


class Sink:
    """Keeps each batch by its id, as an idempotent sink does; may fail right after a batch was kept."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}
        self.seen: list[int] = []
        self.fails_after: set[int] = set()
        self.before: Callable[[int], None] = lambda _: None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.before(batch_id)
        found = sorted(bytes(row.body).decode() for row in rows.select("body").collect())
        self.seen.append(batch_id)
        if batch_id in self.batches:
            assert self.batches[batch_id] == found, "a repeated batch has other rows"
        self.batches[batch_id] = found
        if batch_id in self.fails_after:
            self.fails_after.discard(batch_id)
            raise RuntimeError("the sink fell over after it had kept the batch")

    @property
    def bodies(self) -> list[str]:
        return sorted(body for batch in self.batches.values() for body in batch)


def numbers(count: int, first: int = 0) -> list[str]:
    return sorted(str(first + at) for at in range(count))
