// Everything that AMQP offers on partitioned entities, with the unmodified JavaScript SDK. `keys` has one key for each
// fragment, by its index.
import { bodies, failureOf, main, receive, withClient } from "./program.mjs";

const fragment = (sequenceNumber) => Number(BigInt(sequenceNumber.toString()) >> 48n);
const fragments = (messages) => messages.map((message) => fragment(message.sequenceNumber));
const sorted = (values) => [...values].sort();
let made = 0;
const named = (message) => ({ messageId: `m-${(made += 1)}`, ...message });

// The two ends of a queue, or of a topic with its subscription.
const ends = (client, { queue, topic }) =>
  queue === undefined
    ? [client.createSender(topic), client.createReceiver(topic, "s")]
    : [client.createSender(queue), client.createReceiver(queue)];

async function sendToFragments(sender, keys, ...indexes) {
  for (const index of indexes) {
    await sender.sendMessages(named({ body: index, partitionKey: keys[index] }));
  }
}

async function completeAll(receiver, messages) {
  for (const message of messages) {
    await receiver.completeMessage(message);
  }
}

async function batches(client, parameters) {
  const [sender, receiver] = ends(client, parameters);
  for (const name of ["a", "b", "c"]) {
    const batch = await sender.createMessageBatch();
    for (let index = 0; index < 10; index += 1) {
      batch.tryAddMessage(named({ body: `${name}${index}` }));
    }
    await sender.sendMessages(batch);
  }
  const distinct = parameters.keys.slice(0, 2).map((partitionKey) => named({ body: "x", partitionKey }));
  const refused = await failureOf(() => sender.sendMessages(distinct));
  const found = await receive(receiver, 30);
  const places = {};
  const order = {};
  for (const message of found) {
    (places[message.body[0]] ??= new Set()).add(fragment(message.sequenceNumber));
    (order[message.body[0]] ??= []).push(message.body);
  }
  await completeAll(receiver, found);
  return {
    order,
    fragmentsOfEach: Object.values(places).map((place) => place.size),
    fragmentsOfAll: new Set(Object.values(places).flatMap((place) => [...place])).size,
    refused,
    left: (await receiver.peekMessages(1)).length,
  };
}

async function byNumber(client, parameters) {
  const [sender, receiver] = ends(client, parameters);
  await sendToFragments(sender, parameters.keys, 0, 7, 15);
  const found = await receive(receiver, 3);
  const until = found.map((message) => message.lockedUntilUtc);
  const renewed = [];
  for (const message of found) {
    renewed.push(await receiver.renewMessageLock(message));
    await receiver.deferMessage(message);
  }
  const peeked = await receiver.peekMessages(10);
  const numbers = peeked.map((message) => message.sequenceNumber);
  const fromNumber = bodies(await receiver.peekMessages(5, { fromSequenceNumber: numbers[1] }));
  const missing = await failureOf(() => receiver.receiveDeferredMessages([...numbers, numbers[0].add(1)]));
  const deferred = await receiver.receiveDeferredMessages(numbers);
  await completeAll(receiver, deferred);
  return {
    peeked: [bodies(peeked), fragments(peeked)],
    fromNumber,
    isRenewed: renewed.every((end, index) => end >= until[index]),
    missing: missing?.code,
    deferred: bodies(deferred),
  };
}

async function schedule(client, parameters) {
  const { keys } = parameters;
  const [sender, receiver] = ends(client, parameters);
  const later = new Date(Date.now() + 600_000);
  const numbers = [];
  for (const index of [1, 8]) {
    numbers.push(...(await sender.scheduleMessages(named({ body: index, partitionKey: keys[index] }), later)));
  }
  const together = await sender.scheduleMessages([named({ body: 1 }), named({ body: 2 })], later);
  const distinct = [named({ body: 1, partitionKey: keys[1] }), named({ body: 2, partitionKey: keys[2] })];
  const refused = await failureOf(() => sender.scheduleMessages(distinct, later));
  const missing = await failureOf(() => sender.cancelScheduledMessages([...numbers, numbers[1].add(1)]));
  await sender.cancelScheduledMessages([...numbers, ...together]);
  const again = await failureOf(() => sender.cancelScheduledMessages(numbers[0]));
  await sender.scheduleMessages(named({ body: "comes", partitionKey: keys[8] }), new Date(Date.now() + 1_500));
  const [message] = await receive(receiver, 1);
  await receiver.completeMessage(message);
  return {
    fragments: numbers.map(fragment),
    together: new Set(together.map(fragment)).size,
    refused,
    missing: missing?.code,
    again: again?.code,
    came: [message.body, fragment(message.sequenceNumber)],
  };
}

async function rules(client, { topic, keys }) {
  const manager = client.createRuleManager(topic, "s");
  await manager.createRule("red", { sqlExpression: "colour = 'red'" });
  await manager.deleteRule("$Default");
  const sender = client.createSender(topic);
  for (const colour of ["red", "blue"]) {
    for (const partitionKey of keys) {
      await sender.sendMessages(named({ body: colour, partitionKey, applicationProperties: { colour } }));
    }
  }
  const receiver = client.createReceiver(topic, "s");
  const found = await receive(receiver, keys.length);
  await completeAll(receiver, found);
  await manager.deleteRule("red");
  await sender.sendMessages(named({ body: "red", applicationProperties: { colour: "red" } }));
  return {
    bodies: sorted(new Set(bodies(found))),
    fragments: new Set(fragments(found)).size,
    left: (await receiver.peekMessages(10)).length,
  };
}

async function sessions(client, { queue, keys }) {
  const sender = client.createSender(queue);
  const names = [keys[3], keys[9], keys[14]];
  for (const sessionId of names) {
    await sender.sendMessages([named({ body: 1, sessionId }), named({ body: 2, sessionId })]);
  }
  const found = [];
  for (let index = 0; index < names.length; index += 1) {
    const receiver = await client.acceptNextSession(queue);
    const before = receiver.sessionLockedUntilUtc;
    const renewed = await receiver.renewSessionLock();
    await receiver.setSessionState(Buffer.from(`of ${receiver.sessionId}`));
    const messages = await receive(receiver, 2);
    // The client goes on behind the last number that it peeked anywhere in the queue, unless it is told where to begin.
    const peeked = await receiver.peekMessages(10, { fromSequenceNumber: messages[0].sequenceNumber });
    await receiver.deferMessage(messages[0]);
    await receiver.completeMessage(messages[1]);
    const [deferred] = await receiver.receiveDeferredMessages(messages[0].sequenceNumber);
    await receiver.completeMessage(deferred);
    found.push({
      sessionId: receiver.sessionId,
      isRenewed: renewed >= before,
      peeked: bodies(peeked),
      fragments: [...new Set(fragments(peeked))],
      received: bodies(messages),
      deferred: deferred.body,
    });
    await receiver.close();
  }
  const states = {};
  for (const sessionId of names) {
    const receiver = await client.acceptSession(queue, sessionId);
    states[sessionId] = (await receiver.getSessionState()).toString();
    await receiver.close();
  }
  return { found, states };
}

const quick = { retryOptions: { maxRetries: 0 } };
await main({
  batches: withClient(batches, quick),
  byNumber: withClient(byNumber, quick),
  schedule: withClient(schedule, quick),
  rules: withClient(rules),
  sessions: withClient(sessions),
});
