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
    topic: await failureOf(() => admin.createTopic(queue)),
  };
}

await main({ lifeOfAQueue, defaults, pages, runtime, refusals });
