// Topics, subscriptions and rules with the unmodified JavaScript SDK.
import { bodies, failureOf, main, number, receive, send, withClient } from "./program.mjs";

const named = (rule) => ({ name: rule.name, filter: plain(rule.filter), action: rule.action });

// Dates as milliseconds, so that they survive JSON with their type told.
function plain(filter) {
  const values = filter.applicationProperties;
  if (values === undefined) {
    return filter;
  }
  const told = Object.entries(values).map(([key, value]) => [key, value instanceof Date ? { ms: +value } : value]);
  return { ...filter, applicationProperties: Object.fromEntries(told) };
}

async function listed(rules, options = {}) {
  const found = [];
  for await (const rule of rules.listRules(options)) {
    if (rule !== undefined) {
      // That is how this SDK lists nothing.
      found.push(named(rule));
    }
  }
  return found;
}

// Every verb on a subscription, while another one keeps its copies.
async function settle(client, { topic }) {
  await send(client, topic, { body: "complete" }, { body: "abandon" }, { body: "defer" }, { body: "dead" });
  await send(client, topic, [{ body: "batch 1" }, { body: "batch 2" }]);
  const receiver = client.createReceiver(topic, "s");
  const messages = await receive(receiver, 6);
  const [complete, abandon, defer, dead, ...batch] = messages;
  await receiver.completeMessage(complete);
  await receiver.abandonMessage(abandon, { changed: true });
  await receiver.deferMessage(defer);
  await receiver.deadLetterMessage(dead, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  const renewed = await receiver.renewMessageLock(batch[0]);
  for (const message of batch) {
    await receiver.completeMessage(message);
  }
  const [again] = await receive(receiver, 1);
  await receiver.completeMessage(again);
  const peeked = await receiver.peekMessages(10, { fromSequenceNumber: messages[0].sequenceNumber });
  const [deferred] = await receiver.receiveDeferredMessages([peeked[0].sequenceNumber]);
  await receiver.completeMessage(deferred);
  const [found] = await receive(client.createReceiver(topic, "s", { subQueueType: "deadLetter" }), 1);
  const other = client.createReceiver(topic, "other", { receiveMode: "receiveAndDelete" });
  return {
    bodies: bodies(messages),
    numbers: messages.map((message) => number(message.sequenceNumber)),
    hasRenewed: renewed > new Date(),
    again: [again.body, again.deliveryCount, again.applicationProperties],
    peeked: peeked.map((message) => [message.body, message.state]),
    deferred: deferred.body,
    dead: [found.body, found.deadLetterReason, found.deadLetterErrorDescription],
    other: bodies(await receive(other, 6)),
  };
}

async function schedule(client, { topic }) {
  const sender = client.createSender(topic);
  const due = new Date(Date.now() + 2500);
  const numbers = await sender.scheduleMessages([{ body: "comes" }, { body: "cancelled" }], due);
  await sender.cancelScheduledMessages(numbers[1]);
  const again = await failureOf(() => sender.cancelScheduledMessages(numbers[1]));
  const receiver = client.createReceiver(topic, "s");
  const before = await receiver.peekMessages(10);
  const [message] = await receive(receiver, 1);
  await receiver.completeMessage(message);
  return { before: bodies(before), body: message.body, lateMs: message.enqueuedTimeUtc - due, again };
}

async function sessions(client, { topic }) {
  for (const sessionId of ["a", "b"]) {
    await send(client, topic, { body: `${sessionId}1`, sessionId }, { body: `${sessionId}2`, sessionId });
  }
  const named = await client.acceptSession(topic, "s", "b");
  const next = await client.acceptNextSession(topic, "s");
  const locked = await failureOf(() => client.acceptSession(topic, "s", "a"));
  await next.setSessionState({ half: "way" });
  await named.renewSessionLock();
  const found = {
    named: [named.sessionId, bodies(await receive(named, 2))],
    next: [next.sessionId, bodies(await receive(next, 2))],
    state: await next.getSessionState(),
    locked,
  };
  await named.close();
  await next.close();
  return found;
}

// A streaming receiver of a subscription.
async function subscribe(client, { topic, count }) {
  const receiver = client.createReceiver(topic, "s");
  const seen = [];
  const errors = [];
  let arrived;
  const all = new Promise((resolve) => {
    arrived = resolve;
  });
  const subscription = receiver.subscribe({
    processMessage: async (message) => {
      seen.push(message.body);
      if (seen.length === count) {
        arrived();
      }
    },
    processError: async ({ error }) => {
      errors.push(error.message);
    },
  });
  await send(client, topic, ...Array.from({ length: count }, (_, index) => ({ body: index })));
  await all;
  // A link that closes before the last completion is answered leaves this SDK waiting for a minute.
  while ((await client.createReceiver(topic, "s").peekMessages(1)).length > 0);
  await subscription.close();
  await receiver.close();
  return { seen, errors };
}

const everyProperty = {
  correlationId: "c",
  messageId: "m",
  to: "t",
  replyTo: "r",
  subject: "s",
  sessionId: "x",
  replyToSessionId: "rx",
  contentType: "text/plain",
  applicationProperties: {
    text: "some",
    whole: 7,
    large: 2 ** 40,
    half: 0.5,
    yes: true,
    no: false,
    when: new Date(1767323045000),
  },
};

async function rules(client, { topic }) {
  const manager = client.createRuleManager(topic, "s");
  const first = await listed(manager);
  await manager.createRule("sql", { sqlExpression: "color = 'red'" });
  await manager.createRule("acting", { sqlExpression: "n > 1" }, { sqlExpression: "SET n = n + 1" });
  await manager.createRule("correlation", everyProperty);
  await manager.createRule("label", { subject: "only" });
  await manager.createRule("everything", { sqlExpression: "1=1" });
  await manager.createRule("nothing", { sqlExpression: "1=0" });
  await manager.deleteRule("everything");
  await manager.deleteRule("$Default");
  const rest = await listed(manager);
  const pages = [];
  for await (const page of manager.listRules().byPage({ maxPageSize: 2 })) {
    pages.push(page.map((rule) => rule.name));
  }
  const twice = await failureOf(() => manager.createRule("SQL", { sqlExpression: "1=1" }));
  const missing = await failureOf(() => manager.deleteRule("everything"));
  const wrong = await failureOf(() => manager.createRule("wrong", { sqlExpression: "color =" }));
  const empty = await failureOf(() => manager.createRule("empty", { correlationId: undefined }));
  const badName = await failureOf(() => manager.createRule("a/b", { sqlExpression: "1=1" }));
  for (const rule of rest) {
    await manager.deleteRule(rule.name);
  }
  const last = await listed(manager);
  return { first, rest, pages, twice, missing, wrong, empty, badName, last };
}

// Rules made over AMQP select and change.
async function selected(client, { topic }) {
  const manager = client.createRuleManager(topic, "s");
  await manager.deleteRule("$Default");
  await manager.createRule("acting", { sqlExpression: "n > 1" }, { sqlExpression: "SET n = n + 1; SET sys.Label = 'x'" });
  await manager.createRule("exact", everyProperty);
  const { applicationProperties, ...fields } = everyProperty;
  await send(client, topic, { body: "exact", ...fields, applicationProperties });
  await send(client, topic, { body: "other", ...fields, applicationProperties: { ...applicationProperties, half: 1 } });
  await send(client, topic, { body: "two", applicationProperties: { n: 2 } }, { body: "one", applicationProperties: { n: 1 } });
  const receiver = client.createReceiver(topic, "s", { receiveMode: "receiveAndDelete" });
  const found = await receive(receiver, 2);
  const more = await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 });
  return {
    found: found.map((message) => [message.body, message.subject]),
    changed: found[1].applicationProperties,
    more: bodies(more),
  };
}

// With a key that may only listen.
async function listening(client, { topic }) {
  const manager = client.createRuleManager(topic, "s");
  return {
    names: (await listed(manager)).map((rule) => rule.name),
    create: await failureOf(() => manager.createRule("r", { sqlExpression: "1=1" })),
    remove: await failureOf(() => manager.deleteRule("$Default")),
    send: await failureOf(() => send(client, topic, { body: "refused" })),
    received: bodies(await receive(client.createReceiver(topic, "s"), 1)).map(String),
  };
}

async function refused(client, { topic, subscription }) {
  return {
    receive: await failureOf(() => client.createReceiver(topic).receiveMessages(1, { maxWaitTimeInMs: 500 })),
    send: await failureOf(() => send(client, `${topic}/Subscriptions/${subscription}`, { body: "lost" })),
    missing: await failureOf(() => client.createReceiver(topic, "no-such").receiveMessages(1)),
    rules: await failureOf(() => listed(client.createRuleManager(topic, "no-such"))),
  };
}

// A subscription that forwards, and one whose dead letters move on.
async function forwarded(client, { topic, second }) {
  await send(client, topic, { body: "moved" });
  const end = client.createReceiver(second, "end");
  const [moved] = await receive(end, 1);
  await end.completeMessage(moved);
  const reader = client.createReceiver(topic, "read");
  const [message] = await receive(reader, 1);
  await reader.deadLetterMessage(message, { deadLetterReason: "why" });
  const [dead] = await receive(end, 1);
  await end.completeMessage(dead);
  return {
    moved: [moved.body, number(moved.enqueuedSequenceNumber)],
    dead: [dead.body, dead.deadLetterReason, dead.deadLetterSource],
  };
}

const once = { retryOptions: { maxRetries: 0, timeoutInMs: 10_000 } };
await main({
  settle: withClient(settle),
  schedule: withClient(schedule),
  sessions: withClient(sessions, once),
  subscribe: withClient(subscribe),
  rules: withClient(rules, once),
  selected: withClient(selected),
  listening: withClient(listening, once),
  refused: withClient(refused, once),
  forwarded: withClient(forwarded),
});
