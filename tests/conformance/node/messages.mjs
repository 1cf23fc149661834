// Sending, receiving and settling with the unmodified JavaScript SDK.
import { bodies, failureOf, main, number, receive, send, withClient } from "./program.mjs";

const everyProperty = {
  body: { text: "body", list: [1, 2] },
  messageId: "id-1",
  subject: "label",
  correlationId: "correlation",
  contentType: "application/json",
  replyTo: "somewhere",
  to: "someone",
  replyToSessionId: "reply-session",
  timeToLive: 60_000,
  applicationProperties: { color: "red", count: 7, ratio: 0.5, yes: true, when: new Date(1767323045000), none: null },
};

async function roundTrip(client, { queue }) {
  await send(client, queue, everyProperty);
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.completeMessage(message);
  const after = await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 });
  const names = ["body", "messageId", "subject", "correlationId", "contentType", "replyTo", "to", "replyToSessionId"];
  return {
    ...Object.fromEntries([...names, "timeToLive", "deliveryCount", "state"].map((name) => [name, message[name]])),
    applicationProperties: { ...message.applicationProperties, when: message.applicationProperties.when.valueOf() },
    sequenceNumber: number(message.sequenceNumber),
    hasLock: typeof message.lockToken === "string" && message.lockedUntilUtc > new Date(),
    hasExpiry: message.expiresAtUtc - message.enqueuedTimeUtc,
    after: after.length,
  };
}

async function batch(client, { queue, count }) {
  const sender = client.createSender(queue);
  const messages = await sender.createMessageBatch();
  for (let index = 0; index < count; index += 1) {
    if (!messages.tryAddMessage({ body: index, messageId: `m${index}` })) {
      throw new Error("the batch is full");
    }
  }
  await sender.sendMessages(messages);
  await sender.sendMessages([
    { body: "list-1", messageId: "l1" },
    { body: "list-2", messageId: "l2" },
  ]);
  const full = await sender.createMessageBatch({ maxSizeInBytes: 2000 });
  const fits = full.tryAddMessage({ body: "x".repeat(1000) });
  const overflows = !full.tryAddMessage({ body: "x".repeat(1000) });
  const tooLarge = await failureOf(() => sender.sendMessages({ body: Buffer.alloc(256 * 1024) }));
  const receiver = client.createReceiver(queue);
  const received = await receive(receiver, count + 2);
  await Promise.all(received.map((message) => receiver.completeMessage(message)));
  return {
    bodies: bodies(received),
    numbers: received.map((message) => number(message.sequenceNumber)),
    fits,
    overflows,
    tooLarge,
  };
}

async function schedule(client, { queue }) {
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const far = new Date(Date.now() + 3_600_000);
  const [kept, cancelled] = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], far);
  await sender.cancelScheduledMessages(cancelled);
  const again = await failureOf(() => sender.cancelScheduledMessages(cancelled));
  const waiting = await receiver.peekMessages(10);
  const due = new Date(Date.now() + 1500);
  const [soon] = await sender.scheduleMessages({ body: "soon", messageId: "soon" }, due);
  const [message] = await receive(receiver, 1);
  const arrivedMs = Date.now();
  await receiver.completeMessage(message);
  return {
    waiting: waiting.map((peeked) => [peeked.body, peeked.state, peeked.scheduledEnqueueTimeUtc.getTime() - far]),
    sameNumber: number(waiting[0].sequenceNumber) === number(kept),
    cancelledAgain: again,
    body: message.body,
    isNewNumber: number(message.sequenceNumber) > number(soon),
    wasEarly: arrivedMs < due,
    enqueuedLateMs: message.enqueuedTimeUtc - due,
    lateMs: arrivedMs - due,
  };
}

async function peek(client, { queue }) {
  await send(client, queue, ...[0, 1, 2, 3, 4].map((body) => ({ body })));
  const receiver = client.createReceiver(queue);
  const first = await receiver.peekMessages(2);
  const second = await receiver.peekMessages(10);
  const from = await receiver.peekMessages(10, { fromSequenceNumber: first[1].sequenceNumber });
  const beyond = await receiver.peekMessages(10);
  return {
    first: bodies(first),
    second: bodies(second),
    from: bodies(from),
    beyond: bodies(beyond),
    lockToken: first[0].lockToken ?? null,
    counts: first.map((message) => message.deliveryCount),
  };
}

async function defer(client, { queue }) {
  await send(client, queue, { body: "later", applicationProperties: { a: 1, b: 1 } }, { body: "now" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message, { b: 2, c: 3 });
  const [next] = await receive(receiver, 1);
  await receiver.completeMessage(next);
  const [peeked] = await receiver.peekMessages(1);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  const locked = await failureOf(() => receiver.receiveDeferredMessages(message.sequenceNumber));
  await receiver.completeMessage(deferred);
  const gone = await failureOf(() => receiver.receiveDeferredMessages(message.sequenceNumber));
  return {
    next: next.body,
    peekedState: peeked.state,
    deferred: [deferred.body, deferred.state, deferred.deliveryCount, deferred.applicationProperties],
    locked,
    gone,
  };
}

async function deadLetter(client, { queue }) {
  await send(client, queue, { body: "bad", messageId: "m", applicationProperties: { kept: 1 } });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "Unreadable",
    deadLetterErrorDescription: "no such format",
    extra: "added",
  });
  const left = await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 });
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [found] = await receive(dead, 1);
  await dead.completeMessage(found);
  return {
    left: left.length,
    body: found.body,
    messageId: found.messageId,
    reason: found.deadLetterReason,
    description: found.deadLetterErrorDescription,
    properties: found.applicationProperties,
  };
}

async function abandon(client, { queue }) {
  await send(client, queue, { body: "again", applicationProperties: { a: 1, b: "one" } });
  const receiver = client.createReceiver(queue);
  const seen = [];
  let [message] = await receive(receiver, 1);
  seen.push([message.deliveryCount, { ...message.applicationProperties }]);
  await receiver.abandonMessage(message, { b: "two", c: true });
  [message] = await receive(receiver, 1);
  seen.push([message.deliveryCount, { ...message.applicationProperties }]);
  await receiver.abandonMessage(message);
  [message] = await receive(receiver, 1);
  seen.push([message.deliveryCount, { ...message.applicationProperties }]);
  await receiver.completeMessage(message);
  const twice = await failureOf(() => receiver.completeMessage(message));
  return { seen, twice };
}

async function renewLock(client, { queue, lockMs }) {
  await send(client, queue, { body: "long work" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const firstEnd = message.lockedUntilUtc;
  let renewals = 0;
  let renewedTo = firstEnd;
  while (Date.now() < firstEnd.getTime() + 500) {
    await new Promise((resolve) => setTimeout(resolve, lockMs / 4));
    renewedTo = await receiver.renewMessageLock(message);
    renewals += 1;
  }
  const others = await client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 300 });
  await receiver.completeMessage(message);
  return { renewals, gainedMs: renewedTo - firstEnd, others: others.length };
}

async function autoRenewal(client, { queue, lockMs }) {
  await send(client, queue, { body: "slow", messageId: "slow" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await new Promise((resolve) => setTimeout(resolve, lockMs + 1500));
  const failure = await failureOf(() => receiver.completeMessage(message));
  return { failure, left: (await receiver.peekMessages(1, { fromSequenceNumber: message.sequenceNumber })).length };
}

async function lockLost(client, { queue, lockMs }) {
  await send(client, queue, { body: "late", messageId: "late" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  await new Promise((resolve) => setTimeout(resolve, lockMs + 500));
  const complete = await failureOf(() => receiver.completeMessage(message));
  const renew = await failureOf(() => receiver.renewMessageLock(message));
  const [again] = await receive(receiver, 1);
  await receiver.completeMessage(again);
  return { complete, renew, count: again.deliveryCount };
}

async function receiveAndDelete(client, { queue }) {
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  await receiver.receiveMessages(1, { maxWaitTimeInMs: 200 }); // opens the link
  const rounds = [];
  for (const count of [0, 2, 5, 0, 3]) {
    await send(client, queue, ...Array.from({ length: count }, (_, index) => ({ body: index })));
    const startedMs = performance.now();
    const found = await receiver.receiveMessages(10, { maxWaitTimeInMs: 400 });
    rounds.push({ sent: count, got: found.length, ms: performance.now() - startedMs, closed: receiver.isClosed });
  }
  const left = await receiver.peekMessages(10);
  return { rounds, left: left.length };
}

// The failing message travels alone: the SDK's AMQP library gives neighbours of an abandoned delivery its outcome.
async function subscribe(client, { queue, count }) {
  const receiver = client.createReceiver(queue);
  const seen = [];
  const errors = [];
  const waiters = [];
  const until = (length) => new Promise((resolve) => waiters.push([length, resolve]));
  const subscription = receiver.subscribe(
    {
      processMessage: async (message) => {
        if (message.body === "fails" && message.deliveryCount === 0) {
          throw new Error("the handler failed");
        }
        seen.push([message.body, message.deliveryCount]);
        waiters.filter(([length]) => length === seen.length).forEach(([, resolve]) => resolve());
      },
      processError: async ({ error }) => {
        errors.push(error.message);
      },
    },
    { maxConcurrentCalls: 4 },
  );
  const first = until(1);
  await send(client, queue, { body: "fails" });
  await first;
  const all = until(count + 1);
  await send(client, queue, Array.from({ length: count }, (_, index) => ({ body: index })));
  await all;
  await subscription.close();
  await receiver.close();
  const left = await client.createReceiver(queue).peekMessages(100);
  return { seen, errors, left: left.length };
}

async function duplicates(client, { queue }) {
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "first", messageId: "same" });
  await sender.sendMessages({ body: "second", messageId: "same" });
  await sender.sendMessages([{ body: "third", messageId: "same" }, { body: "other", messageId: "other" }]);
  await sender.scheduleMessages({ body: "scheduled", messageId: "same" }, new Date(Date.now() + 600_000));
  return { kept: bodies(await client.createReceiver(queue).peekMessages(10)) };
}

// The SDK's sender gives no id, and its receiver keeps its lock renewals by id: it fails without one as long as
// it renews (on completing, or on closing), and works with renewal switched off.
async function withoutMessageId(client, { queue }) {
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "no id" });
  await sender.sendMessages([{ body: "one of two" }, { body: "two of two" }]);
  const receiver = client.createReceiver(queue);
  const messages = await receive(receiver, 3);
  await receiver.abandonMessage(messages[0]);
  const [again] = await receive(receiver, 1);
  await Promise.all([again, ...messages.slice(1)].map((message) => receiver.completeMessage(message)));
  return {
    ids: messages.map((message) => message.messageId),
    again: again.messageId,
    left: (await receiver.peekMessages(1)).length,
    close: await failureOf(() => receiver.close()),
  };
}

async function amqpBodies(client, { queue }) {
  await send(
    client,
    queue,
    { bodyType: "value", body: { key: 5 }, messageAnnotations: { "x-mine": "kept" } },
    { bodyType: "sequence", body: [[1, 2], ["three"]] },
    { bodyType: "data", body: Buffer.from([0, 255]) },
  );
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const found = await receive(receiver, 3);
  await Promise.all(found.map((message) => receiver.completeMessage(message)));
  return found.map(({ body, _rawAmqpMessage: raw }) => {
    return [raw.bodyType, Buffer.isBuffer(body) ? [...body] : body, raw.messageAnnotations["x-mine"] ?? null];
  });
}

async function refusals(client, { queue, sessionQueue }) {
  const outsider = await failureOf(() => send(client, `${queue}-missing`, { body: "x" }));
  const noSession = await failureOf(() => send(client, sessionQueue, { body: "x" }));
  const plain = await failureOf(() => client.createReceiver(sessionQueue).receiveMessages(1, { maxWaitTimeInMs: 500 }));
  const sessioned = await failureOf(() => client.acceptSession(queue, "s"));
  return { outsider, noSession, plain, sessioned };
}

const quick = { retryOptions: { maxRetries: 0 } };
await main({
  roundTrip: withClient(roundTrip),
  batch: withClient(batch, quick),
  schedule: withClient(schedule),
  peek: withClient(peek),
  defer: withClient(defer),
  deadLetter: withClient(deadLetter),
  abandon: withClient(abandon, quick),
  renewLock: withClient(renewLock),
  autoRenewal: withClient(autoRenewal),
  lockLost: withClient(lockLost, quick),
  receiveAndDelete: withClient(receiveAndDelete),
  subscribe: withClient(subscribe),
  duplicates: withClient(duplicates),
  withoutMessageId: withClient(withoutMessageId),
  amqpBodies: withClient(amqpBodies),
  refusals: withClient(refusals, quick),
});
