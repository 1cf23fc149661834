// The unmodified @azure/event-hubs: `node event_hubs_program.mjs [OPERATION…]`. Hubs have two partitions and are there before.
import {
  EventHubBufferedProducerClient,
  EventHubConsumerClient,
  EventHubProducerClient,
  earliestEventPosition,
  latestEventPosition,
} from "@azure/event-hubs";
import { connectionString, equal, fails, holds, main, numbered, operation, sleep, stranger, transport, until } from "./trial.mjs";

// Processors look for partitions often: by default every ten seconds, for one.
const balancing = { loadBalancingOptions: { strategy: "greedy", updateIntervalInMs: 200 } };
const quick = { retryOptions: { maxRetries: 1, retryDelayInMs: 50, timeoutInMs: 15_000 }, ...transport };

// Of one operation: its clients, and short words for what all of them do.
class Bench {
  constructor(hub) {
    this.hub = hub;
    this.opened = [];
    this.producer = this.keep(new EventHubProducerClient(connectionString, hub, quick));
  }

  keep(client) {
    this.opened.push(client);
    return client;
  }

  consumer(group = "$Default", ...store) {
    return this.keep(new EventHubConsumerClient(group, connectionString, this.hub, ...store, { ...quick, ...balancing }));
  }

  numbers(count) {
    return this.producer.sendBatch(numbered(count).map((body) => ({ body })), { partitionId: "0" });
  }

  // Until so many events have come.
  async read(count, { partition = "0", consumer = this.consumer(), ...options } = {}) {
    const found = [];
    let problem = null;
    const handlers = {
      processEvents: async (events, context) => {
        found.push(...events);
        found.context = context;
      },
      processError: async (error) => void (problem ??= error),
    };
    const settings = { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1, ...options };
    const subscription = partition === null ? consumer.subscribe(handlers, settings) : consumer.subscribe(partition, handlers, settings);
    try {
      await until(`${count} events`, () => {
        if (problem) throw problem;
        return found.length >= count;
      });
    } finally {
      await subscription.close();
    }
    return found;
  }

  async close() {
    await Promise.all(this.opened.map((client) => client.close()));
  }
}

const bodies = (events) => events.map((event) => event.body);

operation("publish_and_read", async (bench) => {
  await bench.producer.sendBatch([{ body: "hello" }], { partitionId: "0" });
  const [event] = await bench.read(1);
  equal("found", [event.body, event.sequenceNumber], ["hello", 0]);
  holds("a time", Date.now() - event.enqueuedTimeUtc < 60_000);
});
operation("every_property_comes_back", async (bench) => {
  const sent = { body: { a: 1 }, contentType: "application/json", correlationId: "c", messageId: "id", properties: { color: "red", count: 7, yes: true } };
  await bench.producer.sendBatch([sent], { partitionId: "0" });
  const [found] = await bench.read(1);
  equal("found", Object.fromEntries(Object.keys(sent).map((name) => [name, found[name]])), sent);
});
const comesBack = (body) => async (bench) => {
  await bench.producer.sendBatch([{ body }], { partitionId: "0" });
  equal("body", (await bench.read(1))[0].body, body);
};
operation("body_null", comesBack(null));
operation("body_number", comesBack(7));
operation("body_list", comesBack([1, "a"]));
operation("body_bytes", comesBack(Buffer.from("bytes")));
operation("body_text", comesBack("text"));
operation("body_object", comesBack({ a: { b: [1, null, true] } }));
operation("body_of_no_bytes", comesBack(Buffer.alloc(0)));
operation("body_is_not_parsed_when_told", async (bench) => {
  await bench.producer.sendBatch([{ body: { a: 1 } }], { partitionId: "0" });
  equal("body", String((await bench.read(1, { skipParsingBodyAsJson: true }))[0].body), '{"a":1}');
});
operation("message_id_of_each_type", async (bench) => {
  const ids = ["text", 7, Buffer.from("0123456789abcdef")];
  await bench.producer.sendBatch(ids.map((messageId) => ({ body: "x", messageId })), { partitionId: "0" });
  equal("ids", (await bench.read(3)).map((event) => event.messageId), ids);
});
operation("value_and_sequence_bodies", async (bench) => {
  const sent = [{ bodyType: "value", body: { a: 1 } }, { bodyType: "sequence", body: [1, "a"] }];
  await bench.producer.sendBatch(sent, { partitionId: "0" });
  equal("bodies", bodies(await bench.read(2)), [{ a: 1 }, [1, "a"]]);
});
operation("footer", async (bench) => {
  await bench.producer.sendBatch([{ bodyType: "data", body: "x", footer: { sum: 7 } }], { partitionId: "0" });
  equal("footer", (await bench.read(1))[0].getRawAmqpMessage().footer, { sum: 7 });
});
operation("by_key", async (bench) => {
  await bench.producer.sendBatch([{ body: "one" }], { partitionKey: "a key" });
  await bench.producer.sendBatch([{ body: "two" }], { partitionKey: "a key" });
  const found = await bench.read(2, { partition: null });
  equal("found", found.map((event) => [event.body, event.partitionKey]), [["one", "a key"], ["two", "a key"]]);
});
operation("batch", async (bench) => {
  const batch = await bench.producer.createBatch({ partitionId: "0" });
  numbered(100).forEach((body) => holds("it fits", batch.tryAdd({ body })));
  holds("it does not", !batch.tryAdd({ body: Buffer.alloc(1_048_000) }));
  await bench.producer.sendBatch(batch);
  equal("bodies", bodies(await bench.read(100)), numbered(100));
});
operation("batch_by_key", async (bench) => {
  const batch = await bench.producer.createBatch({ partitionKey: "a key" });
  numbered(3).forEach((body) => holds("it fits", batch.tryAdd({ body })));
  equal("count", batch.count, 3);
  await bench.producer.sendBatch(batch);
  equal("keys", (await bench.read(3, { partition: null })).map((event) => event.partitionKey), ["a key", "a key", "a key"]);
});
operation("batch_with_a_bound_of_its_own", async (bench) => {
  const batch = await bench.producer.createBatch({ maxSizeInBytes: 1000 });
  holds("it does not fit", !batch.tryAdd({ body: Buffer.alloc(2000) }));
});
operation("too_large_event_is_told", (bench) =>
  fails("MessageTooLargeError", () => bench.producer.sendBatch([{ body: Buffer.alloc(1_048_600) }], { partitionId: "0" })));
operation("large_event", async (bench) => {
  await bench.producer.sendBatch([{ body: Buffer.alloc(500_000) }], { partitionId: "0" });
  equal("length", (await bench.read(1))[0].body.length, 500_000);
});
operation("what_is_read_can_be_published_again", async (bench) => {
  await bench.producer.sendBatch([{ body: "again", properties: { color: "red" } }], { partitionKey: "k" });
  const [first] = await bench.read(1, { partition: null });
  await bench.producer.sendBatch([first]);
  const found = await bench.read(2, { partition: null });
  equal("properties", found.map((event) => event.properties), [{ color: "red" }, { color: "red" }]);
});
operation("annotated_message_can_be_published_again", async (bench) => {
  await bench.producer.sendBatch([{ body: "again" }], { partitionKey: "k" });
  const [first] = await bench.read(1, { partition: null });
  await bench.producer.sendBatch([first.getRawAmqpMessage()]);
  equal("count", (await bench.read(2, { partition: null })).length, 2);
});
operation("questions", async (bench) => {
  await bench.numbers(2);
  const consumer = bench.consumer();
  const hub = await consumer.getEventHubProperties();
  equal("hub", [hub.name, hub.partitionIds], [bench.hub, ["0", "1"]]);
  const found = await consumer.getPartitionProperties("0");
  equal("partition", [found.beginningSequenceNumber, found.lastEnqueuedSequenceNumber, found.isEmpty], [0, 1, false]);
  equal("empty", (await bench.producer.getPartitionProperties("1")).isEmpty, true);
});
const from = (startPosition, wanted) => async (bench) => {
  await bench.numbers(4);
  equal("bodies", bodies(await bench.read(wanted.length, { startPosition })), wanted);
};
operation("from_the_start", from(earliestEventPosition, ["0", "1", "2", "3"]));
operation("from_an_offset", from({ offset: "1" }, ["2", "3"]));
operation("from_an_offset_inclusive", from({ offset: "1", isInclusive: true }, ["1", "2", "3"]));
operation("from_a_number", from({ sequenceNumber: 2 }, ["3"]));
operation("from_a_number_inclusive", from({ sequenceNumber: 2, isInclusive: true }, ["2", "3"]));
operation("from_a_time", from({ enqueuedOn: Date.now() - 60_000 }, ["0", "1", "2", "3"]));
operation("from_the_end", async (bench) => {
  await bench.numbers(1);
  const timer = setInterval(() => void bench.producer.sendBatch([{ body: "new" }], { partitionId: "0" }), 200);
  const found = await bench.read(1, { startPosition: latestEventPosition }).finally(() => clearInterval(timer));
  equal("body", found[0].body, "new");
});
operation("last_enqueued_is_tracked", async (bench) => {
  await bench.numbers(3);
  const found = await bench.read(3, { trackLastEnqueuedEventProperties: true });
  equal("last", found.context.lastEnqueuedEventProperties.sequenceNumber, 2);
});
operation("another_consumer_group", async (bench) => {
  await bench.numbers(2);
  equal("bodies", bodies(await bench.read(2, { consumer: bench.consumer("second") })), numbered(2));
});
operation("batches_are_as_large_as_wanted", async (bench) => {
  await bench.numbers(10);
  const sizes = [];
  const reading = bench.consumer().subscribe(
    "0",
    { processEvents: async (events) => void sizes.push(events.length), processError: async () => {} },
    { startPosition: earliestEventPosition, maxBatchSize: 3, maxWaitTimeInSeconds: 1, prefetchCount: 5 },
  );
  await until("ten events", () => sizes.reduce((sum, size) => sum + size, 0) === 10);
  await reading.close();
  holds(`none above three: ${sizes}`, sizes.every((size) => size <= 3));
});
operation("a_position_for_each_partition", async (bench) => {
  for (const partitionId of ["0", "1"]) await bench.producer.sendBatch([{ body: `${partitionId}a` }, { body: `${partitionId}b` }], { partitionId });
  const startPosition = { 0: earliestEventPosition, 1: { sequenceNumber: 0 } };
  equal("bodies", bodies(await bench.read(3, { partition: null, startPosition })).sort(), ["0a", "0b", "1b"]);
});
// One that reads already, until `close`.
async function owner(bench, ownerLevel) {
  let count = 0;
  const handlers = { processEvents: async (events) => void (count += events.length), processError: async () => {} };
  const reading = bench.consumer().subscribe("0", handlers, { ownerLevel, startPosition: earliestEventPosition });
  await until("the owner reads", () => count > 0);
  return reading;
}
operation("lower_owner_is_refused", async (bench) => {
  await bench.numbers(1);
  const reading = await owner(bench, 2);
  await fails("ReceiverDisconnectedError", () => bench.read(1, { ownerLevel: 1 })).finally(() => reading.close());
});
operation("reader_without_a_level_beside_an_owner_is_refused", async (bench) => {
  await bench.numbers(1);
  const reading = await owner(bench, 1);
  await fails("epoch", () => bench.read(1)).finally(() => reading.close());
});
operation("higher_owner_takes_over", async (bench) => {
  await bench.numbers(1);
  const problems = [];
  const [low, high] = [bench.consumer(), bench.consumer()];
  let count = 0;
  const reading = low.subscribe(
    "0",
    { processEvents: async (events) => void (count += events.length), processError: async (error) => void problems.push(error.code) },
    { ownerLevel: 1, startPosition: earliestEventPosition },
  );
  await until("the first reads", () => count === 1);
  await bench.read(1, { consumer: high, ownerLevel: 2 });
  await until("the first is told", () => problems.includes("ReceiverDisconnectedError"));
  await reading.close();
});
operation("buffered_producer", async (bench) => {
  const problems = [];
  const options = { ...quick, maxWaitTimeInMs: 200, onSendEventsErrorHandler: async (problem) => void problems.push(String(problem.error)) };
  const buffered = new EventHubBufferedProducerClient(connectionString, bench.hub, options);
  for (const body of numbered(20)) await buffered.enqueueEvent({ body }, { partitionId: "0" });
  await buffered.close({ flush: true });
  equal("problems", problems, []);
  equal("bodies", bodies(await bench.read(20)), numbered(20));
});
operation("buffered_producer_by_key", async (bench) => {
  const sent = [];
  const options = { ...quick, maxWaitTimeInMs: 200, onSendEventsErrorHandler: async () => {}, onSendEventsSuccessHandler: async ({ events }) => void sent.push(...events) };
  const buffered = new EventHubBufferedProducerClient(connectionString, bench.hub, options);
  await buffered.enqueueEvents(numbered(20).map((body) => ({ body })), { partitionKey: "a key" });
  await buffered.flush();
  equal("sent", sent.length, 20);
  await buffered.close();
  equal("partitions", new Set((await bench.read(20, { partition: null })).map((event) => event.partitionKey)).size, 1);
});

// A checkpoint store in memory.
class Memory {
  checkpoints = new Map();
  ownerships = new Map();

  async listOwnership() {
    return [...this.ownerships.values()];
  }

  async claimOwnership(wanted) {
    const claimed = wanted.filter((each) => this.ownerships.get(each.partitionId)?.etag === each.etag);
    return claimed.map((each) => {
      const owned = { ...each, etag: String(Math.random()), lastModifiedTimeInMs: Date.now() };
      this.ownerships.set(each.partitionId, owned);
      return owned;
    });
  }

  async listCheckpoints() {
    return [...this.checkpoints.values()];
  }

  async updateCheckpoint(checkpoint) {
    this.checkpoints.set(checkpoint.partitionId, checkpoint);
  }
}

async function process_(bench, memory, count) {
  const consumer = bench.consumer("$Default", memory);
  const found = [];
  const subscription = consumer.subscribe(
    {
      processEvents: async (events, context) => {
        found.push(...bodies(events));
        if (events.length > 0) await context.updateCheckpoint(events.at(-1));
      },
      processError: async () => {},
    },
    { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
  );
  await until(`${count} events`, () => found.length >= count).finally(() => subscription.close());
  return found.sort();
}
operation("processor", async (bench) => {
  await bench.producer.sendBatch([{ body: "0" }], { partitionId: "0" });
  await bench.producer.sendBatch([{ body: "1" }], { partitionId: "1" });
  equal("bodies", await process_(bench, new Memory(), 2), ["0", "1"]);
});
operation("processor_goes_on_from_its_checkpoint", async (bench) => {
  const memory = new Memory();
  for (const body of ["first", "second"]) {
    await bench.producer.sendBatch([{ body }], { partitionId: "0" });
    equal("bodies", await process_(bench, memory, 1), [body]);
    memory.ownerships.clear();
  }
});
operation("two_processors_share", async (bench) => {
  const memory = new Memory();
  const handlers = { processEvents: async () => {}, processError: async () => {} };
  const both = [1, 2].map(() => bench.consumer("$Default", memory).subscribe(handlers));
  await until("two owners", () => new Set([...memory.ownerships.values()].map((each) => each.ownerId)).size === 2);
  await Promise.all(both.map((each) => each.close()));
});
operation("missing_hub_is_told", async (bench) => {
  const producer = bench.keep(new EventHubProducerClient(connectionString, `${bench.hub}-missing`, quick));
  await fails("MessagingEntityNotFoundError", () => producer.sendBatch([{ body: "x" }]));
});
operation("missing_partition_is_told", (bench) =>
  fails("The specified partition is invalid for an EventHub partition sender or receiver", () => bench.producer.sendBatch([{ body: "x" }], { partitionId: "9" })));
operation("wrong_key_is_told", async (bench) => {
  const producer = bench.keep(new EventHubProducerClient(stranger, bench.hub, quick));
  await fails("InvalidSignature", () => producer.sendBatch([{ body: "x" }]));
});
operation("reader_with_a_wrong_key_is_told", async (bench) => {
  const consumer = bench.keep(new EventHubConsumerClient("$Default", stranger, bench.hub, quick));
  await fails("InvalidSignature", () => bench.read(1, { consumer }));
});
operation("missing_consumer_group_is_told", (bench) =>
  fails("MessagingEntityNotFoundError", () => bench.read(1, { consumer: bench.consumer("missing") })));
operation("properties_of_a_missing_partition_are_told", (bench) => fails("", () => bench.producer.getPartitionProperties("9")));
operation("hub_in_the_connection_string", async (bench) => {
  const producer = bench.keep(new EventHubProducerClient(`${connectionString};EntityPath=${bench.hub}`, quick));
  equal("partitions", await producer.getPartitionIds(), ["0", "1"]);
});
operation("shared_access_signature", async (bench) => {
  const { createSasTokenProvider, parseConnectionString } = await import("@azure/core-amqp");
  const parts = parseConnectionString(connectionString);
  const provider = createSasTokenProvider({ sharedAccessKeyName: parts.SharedAccessKeyName, sharedAccessKey: parts.SharedAccessKey });
  const { token } = await provider.getToken(parts.Endpoint.replace(/\/$/, ""));
  const emulator = parts.UseDevelopmentEmulator ? ";UseDevelopmentEmulator=true" : "";
  const string = `Endpoint=${parts.Endpoint};SharedAccessSignature=${token}${emulator}`;
  const producer = bench.keep(new EventHubProducerClient(string, bench.hub, quick));
  await producer.sendBatch([{ body: "signed" }], { partitionId: "0" });
  equal("body", (await bench.read(1))[0].body, "signed");
});
operation("two_readers_of_a_group", async (bench) => {
  await bench.numbers(2);
  const both = await Promise.all([bench.read(2), bench.read(2)]);
  equal("bodies", both.map(bodies), [numbered(2), numbered(2)]);
});
operation("events_come_while_reading", async (bench) => {
  const reading = bench.read(3);
  for (const body of numbered(3)) {
    await bench.producer.sendBatch([{ body }], { partitionId: "0" });
    await sleep(50);
  }
  equal("bodies", bodies(await reading), numbered(3));
});

await main((hub) => new Bench(hub));
