// Event hubs with the unmodified JavaScript SDK.
import {
  EventHubBufferedProducerClient,
  EventHubConsumerClient,
  EventHubProducerClient,
  earliestEventPosition,
  latestEventPosition,
} from "@azure/event-hubs";
import { connectionString, failureOf, main } from "./program.mjs";

const quick = { retryOptions: { maxRetries: 0, timeoutInMs: 10_000 } };

async function withProducer(hub, work, options = {}) {
  const producer = new EventHubProducerClient(connectionString, hub, { ...quick, ...options });
  try {
    return await work(producer);
  } finally {
    await producer.close();
  }
}

async function withConsumer(hub, work, { group = "$Default", ...options } = {}) {
  const consumer = new EventHubConsumerClient(group, connectionString, hub, { ...quick, ...options });
  try {
    return await work(consumer);
  } finally {
    await consumer.close();
  }
}

const plain = (event) => ({
  body: event.body,
  number: event.sequenceNumber,
  offset: event.offset,
  key: event.partitionKey ?? null,
});

// Subscribes until so many events have come, or something went wrong.
async function read(consumer, count, { partition, ...options } = {}) {
  const found = [];
  let subscription;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${found.length} of ${count} events came`)), 20_000);
    const handlers = {
      processEvents: async (events, context) => {
        found.push(...events.map((event) => ({ ...plain(event), partition: context.partitionId })));
        if (found.length >= count) {
          clearTimeout(timer);
          resolve();
        }
      },
      processError: async (error) => {
        clearTimeout(timer);
        reject(error);
      },
    };
    const settings = { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1, ...options };
    subscription =
      partition === undefined ? consumer.subscribe(handlers, settings) : consumer.subscribe(partition, handlers, settings);
  }).finally(() => subscription.close());
  return found;
}

async function roundTrip({ hub }) {
  const sent = {
    body: { text: "body", list: [1, 2] },
    contentType: "application/json",
    correlationId: "correlation",
    messageId: "id-1",
    properties: { color: "red", count: 7, ratio: 0.5, yes: true },
  };
  await withProducer(hub, (producer) => producer.sendBatch([sent]));
  return withConsumer(hub, async (consumer) => {
    let subscription;
    const event = await new Promise((resolve, reject) => {
      subscription = consumer.subscribe(
        { processEvents: async ([first]) => first && resolve(first), processError: async (error) => reject(error) },
        { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
      );
    });
    await subscription.close();
    const names = ["body", "contentType", "correlationId", "messageId", "properties", "sequenceNumber", "offset"];
    return {
      ...Object.fromEntries(names.map((name) => [name, event[name]])),
      ageMs: Date.now() - event.enqueuedTimeUtc.valueOf(),
    };
  });
}

async function batches({ hub }) {
  await withProducer(hub, async (producer) => {
    const byKey = await producer.createBatch({ partitionKey: "alphabet" });
    byKey.tryAdd({ body: "in a batch" });
    await producer.sendBatch(byKey);
    await producer.sendBatch([{ body: "in a list" }], { partitionKey: "alphabet" });
    const byId = await producer.createBatch({ partitionId: "3" });
    byId.tryAdd({ body: "for three" });
    await producer.sendBatch(byId);
  });
  const found = await withConsumer(hub, (consumer) => read(consumer, 3));
  return found.map(({ body, key, partition }) => ({ body, key, partition })).sort((a, b) => (a.body < b.body ? -1 : 1));
}

async function sizes({ hub }) {
  return withProducer(hub, async (producer) => {
    const batch = await producer.createBatch();
    const fits = batch.tryAdd({ body: Buffer.alloc(900_000) });
    const overflows = !batch.tryAdd({ body: Buffer.alloc(200_000) });
    await producer.sendBatch(batch);
    const tooLarge = await failureOf(() => producer.sendBatch([{ body: Buffer.alloc(1_100_000) }]));
    return { maxSize: batch.maxSizeInBytes, fits, overflows, tooLarge: tooLarge.code };
  });
}

async function information({ hub }) {
  await withProducer(hub, (producer) => producer.sendBatch([{ body: 1 }, { body: 2 }], { partitionId: "1" }));
  return withConsumer(hub, async (consumer) => {
    const properties = await consumer.getEventHubProperties();
    const [empty, full] = await Promise.all(["0", "1"].map((id) => consumer.getPartitionProperties(id)));
    const plainly = (told) => ({
      id: told.partitionId,
      begin: told.beginningSequenceNumber,
      last: told.lastEnqueuedSequenceNumber,
      offset: told.lastEnqueuedOffset,
      isEmpty: told.isEmpty,
    });
    return {
      name: properties.name,
      partitionIds: properties.partitionIds,
      ids: await consumer.getPartitionIds(),
      ageMs: Date.now() - properties.createdOn.valueOf(),
      empty: plainly(empty),
      full: plainly(full),
      unknown: (await failureOf(() => consumer.getPartitionProperties("9"))).code,
    };
  });
}

async function positions({ hub }) {
  await withProducer(hub, (producer) => producer.sendBatch([0, 1, 2, 3].map((body) => ({ body }))));
  const from = (startPosition, count) =>
    withConsumer(hub, (consumer) => read(consumer, count, { startPosition, partition: "0" }));
  const bodies = (events) => events.map((event) => event.body);
  return {
    start: bodies(await from(earliestEventPosition, 4)),
    offset: bodies(await from({ offset: "1" }, 2)),
    inclusive: bodies(await from({ offset: "1", isInclusive: true }, 3)),
    number: bodies(await from({ sequenceNumber: 2 }, 1)),
    time: bodies(await from({ enqueuedOn: new Date(Date.now() - 60_000) }, 4)),
    behind: await failureOf(() => from({ sequenceNumber: 99 }, 1)),
  };
}

// A reader of the end gets only what comes after it has attached; the first event it sees tells that it has.
async function latest({ hub }) {
  await withProducer(hub, (producer) => producer.sendBatch([{ body: "old" }]));
  return withConsumer(hub, (consumer) =>
    withProducer(hub, async (producer) => {
      const timer = setInterval(() => void producer.sendBatch([{ body: "new" }]), 100);
      const [first] = await read(consumer, 1, { startPosition: latestEventPosition, partition: "0" });
      clearInterval(timer);
      return first.body;
    }),
  );
}

async function epochs({ hub }) {
  await withProducer(hub, (producer) => producer.sendBatch([{ body: "a" }]));
  const hold = (consumer, options) => {
    let subscription;
    const held = { lost: null };
    held.got = new Promise((resolve) => {
      subscription = consumer.subscribe(
        "0",
        {
          processEvents: async (events) => events.length && resolve(events[0].body),
          processError: async (error) => {
            held.lost ??= error.code;
            resolve(null);
          },
        },
        { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1, ...options },
      );
    });
    held.close = () => subscription.close();
    return held;
  };
  return withConsumer(hub, (one) =>
    withConsumer(hub, async (two) => {
      const first = hold(one, { ownerLevel: 1 });
      const got = [await first.got];
      const second = hold(two, { ownerLevel: 2 });
      got.push(await second.got);
      while (first.lost === null) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await first.close();
      const third = hold(one, { ownerLevel: 1 });
      await third.got;
      await Promise.all([second.close(), third.close()]);
      return { got, first: first.lost, third: third.lost };
    }),
  );
}

async function tracking({ hub }) {
  await withProducer(hub, (producer) => producer.sendBatch([{ body: 1 }, { body: 2 }]));
  return withConsumer(hub, async (consumer) => {
    let subscription;
    const told = await new Promise((resolve, reject) => {
      subscription = consumer.subscribe(
        {
          processEvents: async (events, context) => events.length && resolve(context.lastEnqueuedEventProperties),
          processError: async (error) => reject(error),
        },
        { startPosition: earliestEventPosition, trackLastEnqueuedEventProperties: true, maxWaitTimeInSeconds: 1 },
      );
    });
    await subscription.close();
    return { number: told.sequenceNumber, offset: told.offset, isLater: told.retrievedOn >= told.enqueuedOn };
  });
}

// The key chooses the partition in the client; it is not sent along.
async function buffered({ hub, count }) {
  const failures = [];
  const producer = new EventHubBufferedProducerClient(connectionString, hub, {
    ...quick,
    maxWaitTimeInMs: 200,
    onSendEventsErrorHandler: async (problem) => void failures.push(problem.error.message),
  });
  for (let number = 0; number < count; number += 1) {
    await producer.enqueueEvent({ body: number }, { partitionKey: `key-${number % 5}` });
  }
  await producer.close({ flush: true });
  const found = await withConsumer(hub, (consumer) => read(consumer, count));
  const places = {};
  for (const { body, partition } of found) {
    (places[`key-${body % 5}`] ??= new Set()).add(partition);
  }
  const bodies = found.map((event) => event.body);
  return {
    failures,
    first: bodies.filter((body) => body % 5 === 0),
    bodies: bodies.sort((a, b) => a - b),
    places: Object.fromEntries(Object.entries(places).map(([key, all]) => [key, [...all]])),
  };
}

// Only the buffering producer has it for its users.
async function idempotentBuffered({ hub, count }) {
  const failures = [];
  const producer = new EventHubBufferedProducerClient(connectionString, hub, {
    ...quick,
    enableIdempotentRetries: true,
    maxWaitTimeInMs: 50,
    onSendEventsErrorHandler: async (problem) => void failures.push(problem.error.message),
  });
  for (let number = 0; number < count; number += 1) {
    await producer.enqueueEvent({ body: number }, { partitionId: "0" });
    if (number % 10 === 9) {
      await producer.flush();
    }
  }
  await producer.close({ flush: true });
  const found = await withConsumer(hub, (consumer) => read(consumer, count, { partition: "0" }));
  return { failures, bodies: found.map((event) => event.body) };
}

// The same, as the buffering producer does it inside, to see what the two sides tell each other.
async function idempotent({ hub }) {
  const as = (known, work) =>
    withProducer(hub, (producer) => {
      producer._enableIdempotentRetries = true;
      producer._partitionOptions = known === undefined ? undefined : { 0: known };
      return work(producer);
    });
  const told = (producer) => producer.getPartitionPublishingProperties("0");
  const first = await as(undefined, async (producer) => {
    const before = await told(producer);
    await producer.sendBatch([{ body: "a" }, { body: "b" }], { partitionId: "0" });
    await producer.sendBatch([{ body: "c" }], { partitionId: "0" });
    return { before, after: await told(producer) };
  });
  const { producerGroupId, ownerLevel, lastPublishedSequenceNumber: last } = first.after;
  const known = { producerGroupId, ownerLevel, startingSequenceNumber: last };
  const goneOn = await as(known, async (producer) => {
    const before = await told(producer);
    await producer.sendBatch([{ body: "d" }], { partitionId: "0" });
    return before;
  });
  const behind = await as({ ...known, startingSequenceNumber: last - 1 }, told);
  const found = await withConsumer(hub, (consumer) => read(consumer, 4, { partition: "0" }));
  return {
    isEnabled: first.before.isIdempotentPublishingEnabled,
    published: last - first.before.lastPublishedSequenceNumber,
    isSame: goneOn.producerGroupId === producerGroupId && goneOn.ownerLevel === ownerLevel,
    goneOnFrom: goneOn.lastPublishedSequenceNumber - last,
    corrected: behind.lastPublishedSequenceNumber - last,
    bodies: found.map((event) => event.body),
  };
}

async function many({ hub, count }) {
  await withProducer(hub, async (producer) => {
    for (let start = 0; start < count; start += 500) {
      await producer.sendBatch(Array.from({ length: 500 }, (_, index) => ({ body: start + index })));
    }
  });
  const found = await withConsumer(hub, (consumer) => read(consumer, count, { maxBatchSize: 100 }));
  return found.map((event) => event.body);
}

await main({
  roundTrip,
  batches,
  sizes,
  information,
  positions,
  latest,
  epochs,
  tracking,
  buffered,
  idempotent,
  idempotentBuffered,
  many,
});
