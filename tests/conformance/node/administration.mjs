// The unmodified administration client: run it with `busway exec -- node administration.mjs SCENARIO`.
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { connectionString, failureOf, main, send } from "./program.mjs";

const admin = new ServiceBusAdministrationClient(connectionString);

const plain = (properties) =>
  Object.fromEntries(Object.entries(properties).filter(([name]) => !name.startsWith("_")));

async function lifeOfAQueue({ queue }) {
  const created = await admin.createQueue(queue, {
    lockDuration: "PT30S",
    maxDeliveryCount: 5,
    requiresSession: true,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M",
    defaultMessageTimeToLive: "P1D",
    deadLetteringOnMessageExpiration: true,
    userMetadata: "<ours> & theirs",
    authorizationRules: [{ claimType: "SharedAccessKey", keyName: "worker", accessRights: ["Listen"] }],
  });
  const read = await admin.getQueue(queue);
  const twice = await failureOf(() => admin.createQueue(queue));
  read.maxDeliveryCount = 7;
  read.userMetadata = "changed";
  const updated = await admin.updateQueue(read);
  const fixed = await failureOf(() => admin.updateQueue({ ...updated, requiresSession: false }));
  const exists = await admin.queueExists(queue);
  await admin.deleteQueue(queue);
  return {
    created: plain(created),
    updated: plain(updated),
    twice,
    fixed,
    exists,
    after: await admin.queueExists(queue),
    get: await failureOf(() => admin.getQueue(queue)),
    remove: await failureOf(() => admin.deleteQueue(queue)),
  };
}

async function defaults({ queue }) {
  return plain(await admin.createQueue(queue));
}

async function pages({ prefix, count }) {
  for (let index = 0; index < count; index += 1) {
    await admin.createQueue(`${prefix}-${index}`);
  }
  const sizes = [];
  const names = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 3 })) {
    sizes.push(page.length);
    names.push(...page.map((queue) => queue.name));
  }
  const counted = [];
  for await (const queue of admin.listQueuesRuntimeProperties()) {
    counted.push(queue.name);
  }
  return { sizes, names, counted };
}

async function runtime({ queue }) {
  await admin.createQueue(queue);
  const client = new ServiceBusClient(connectionString);
  await send(client, queue, { body: 1 }, { body: 2 }, { body: 3 });
  await client.createSender(queue).scheduleMessages({ body: 4 }, new Date(Date.now() + 600_000));
  const receiver = client.createReceiver(queue);
  const [message] = await receiver.receiveMessages(1);
  await receiver.deadLetterMessage(message);
  await client.close();
  const found = plain(await admin.getQueueRuntimeProperties(queue));
  return { ...found, namespace: plain(await admin.getNamespaceProperties()) };
}

async function refusals({ queue }) {
  const wrongKey = connectionString.replace(/SharedAccessKey=[^;]+/, `SharedAccessKey=${"A".repeat(43)}=`);
  const stranger = new ServiceBusAdministrationClient(wrongKey);
  return {
    stranger: await failureOf(() => stranger.getQueue(queue)),
    name: await failureOf(() => admin.createQueue("wrong*name")),
    lock: await failureOf(() => admin.createQueue(queue, { lockDuration: "PT1H" })),
    partitions: await failureOf(() => admin.createTopic(queue, { enablePartitioning: true, maxSizeInMegabytes: 16384 })),
  };
}

async function all(pages) {
  const found = [];
  for await (const entry of pages) {
    found.push(entry);
  }
  return found;
}

async function pageSizes(pages) {
  const sizes = [];
  for await (const page of pages.byPage({ maxPageSize: 3 })) {
    sizes.push(page.length);
  }
  return sizes;
}

async function lifeOfATopic({ topic }) {
  const created = await admin.createTopic(topic, {
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M",
    defaultMessageTimeToLive: "P1D",
    userMetadata: "<ours> & theirs",
    authorizationRules: [
      { claimType: "SharedAccessKey", keyName: "manager", accessRights: ["Manage", "Send", "Listen"] },
    ],
  });
  const read = await admin.getTopic(topic);
  const twice = await failureOf(() => admin.createTopic(topic));
  const [rule] = read.authorizationRules;
  const oldKey = rule.primaryKey;
  rule.primaryKey = rule.secondaryKey;
  const updated = await admin.updateTopic({ ...read, supportOrdering: false });
  const fixed = await failureOf(() => admin.updateTopic({ ...updated, requiresDuplicateDetection: false }));
  await admin.createSubscription(topic, "one");
  const runtime = plain(await admin.getTopicRuntimeProperties(topic));
  const listed = (await all(admin.listTopics())).map((found) => found.name);
  const counted = (await all(admin.listTopicsRuntimeProperties())).find((found) => found.name === topic);
  const exists = await admin.topicExists(topic);
  await admin.deleteTopic(topic);
  return {
    created: plain(created),
    updated: plain(updated),
    keyChanged: updated.authorizationRules[0].primaryKey !== oldKey,
    twice,
    fixed,
    runtime,
    listed: listed.includes(topic),
    subscriptionCount: counted.subscriptionCount,
    exists,
    after: [await admin.topicExists(topic), await admin.subscriptionExists(topic, "one")],
    get: await failureOf(() => admin.getTopic(topic)),
    remove: await failureOf(() => admin.deleteTopic(topic)),
  };
}

async function lifeOfASubscription({ topic, queue }) {
  await admin.createTopic(topic);
  await admin.createQueue(queue);
  const created = await admin.createSubscription(topic, "s", {
    lockDuration: "PT30S",
    maxDeliveryCount: 5,
    requiresSession: true,
    deadLetteringOnFilterEvaluationExceptions: false,
    forwardDeadLetteredMessagesTo: queue,
    userMetadata: "<ours> & theirs",
    defaultRuleOptions: { name: "mine", filter: { sqlExpression: "a = 1" }, action: { sqlExpression: "SET b = 2" } },
  });
  const firstRules = (await all(admin.listRules(topic, "s"))).map((rule) => rule.name);
  const read = await admin.getSubscription(topic, "s");
  const twice = await failureOf(() => admin.createSubscription(topic, "S"));
  const updated = await admin.updateSubscription({ ...read, maxDeliveryCount: 7, userMetadata: "changed" });
  const fixed = await failureOf(() => admin.updateSubscription({ ...updated, requiresSession: false }));
  const missingTarget = await failureOf(() => admin.createSubscription(topic, "t", { forwardTo: "nowhere" }));
  const runtime = plain(await admin.getSubscriptionRuntimeProperties(topic, "s"));
  for (let index = 0; index < 6; index += 1) {
    await admin.createSubscription(topic, `t${index}`);
  }
  const sizes = await pageSizes(admin.listSubscriptions(topic));
  const listed = (await all(admin.listSubscriptions(topic))).map((found) => found.subscriptionName);
  const counted = (await all(admin.listSubscriptionsRuntimeProperties(topic))).map((found) => found.subscriptionName);
  const exists = await admin.subscriptionExists(topic, "s");
  await admin.deleteSubscription(topic, "s");
  return {
    created: plain(created),
    updated: plain(updated),
    firstRules,
    twice,
    fixed,
    missingTarget,
    runtime,
    sizes,
    listed,
    counted,
    exists,
    after: await admin.subscriptionExists(topic, "s"),
    get: await failureOf(() => admin.getSubscription(topic, "s")),
    remove: await failureOf(() => admin.deleteSubscription(topic, "s")),
  };
}

async function lifeOfARule({ topic }) {
  await admin.createTopic(topic);
  await admin.createSubscription(topic, "s");
  const applicationProperties = { text: "<x> & y", half: 0.5, five: 5, yes: true, at: new Date(1593947533123) };
  const filter = {
    correlationId: "c",
    subject: "l",
    to: "t",
    replyTo: "r",
    replyToSessionId: "rs",
    sessionId: "s",
    messageId: "m",
    contentType: "ct",
    applicationProperties,
  };
  const action = { sqlExpression: "SET a = @p", sqlParameters: { "@p": 1 } };
  const created = await admin.createRule(topic, "s", "r", filter, action);
  const read = await admin.getRule(topic, "s", "r");
  const sameTime = read.filter.applicationProperties.at.getTime() === applicationProperties.at.getTime();
  const twice = await failureOf(() => admin.createRule(topic, "s", "R", { sqlExpression: "a = 1" }));
  read.filter = { sqlExpression: "a = @a", sqlParameters: { "@a": "x" } };
  read.action = undefined;
  const updated = await admin.updateRule(topic, "s", read);
  const wrong = await failureOf(() => admin.createRule(topic, "s", "w", { sqlExpression: "a = = 1" }));
  const first = plain(await admin.getRule(topic, "s", "$Default"));
  for (let index = 0; index < 5; index += 1) {
    await admin.createRule(topic, "s", `z${9 - index}`, { sqlExpression: `a = ${index}` });
  }
  const sizes = await pageSizes(admin.listRules(topic, "s"));
  const listed = (await all(admin.listRules(topic, "s"))).map((rule) => rule.name);
  const exists = await admin.ruleExists(topic, "s", "r");
  await admin.deleteRule(topic, "s", "r");
  return {
    created: plain(created),
    updated: plain(updated),
    sameTime,
    twice,
    wrong,
    first,
    sizes,
    listed,
    exists,
    after: await admin.ruleExists(topic, "s", "r"),
    get: await failureOf(() => admin.getRule(topic, "s", "r")),
    remove: await failureOf(() => admin.deleteRule(topic, "s", "r")),
    lost: await failureOf(() => all(admin.listRules(topic, "none"))),
  };
}

await main({
  lifeOfAQueue,
  defaults,
  pages,
  runtime,
  refusals,
  lifeOfATopic,
  lifeOfASubscription,
  lifeOfARule,
});
