// Sending, receiving, settling.
import Long from "long";
import { connectionString, equal, fails, holds, numbered, operation, sleep, stranger, until } from "./trial.mjs";
import { bodies, clientOf, nothing, one, take, texts } from "./service_bus.mjs";

operation("send_receive_complete", async (bench) => {
  await bench.send(await bench.queue(), { body: "hello" });
  const receiver = bench.receiver();
  const message = await one(receiver);
  equal("found", [message.body, message.deliveryCount], ["hello", 0]);
  await receiver.completeMessage(message);
  await nothing(receiver);
});
operation("every_property_comes_back", async (bench) => {
  const sent = {
    body: { text: "body", list: [1, 2] }, messageId: "id", subject: "label", correlationId: "correlation", contentType: "application/json",
    replyTo: "somewhere", replyToSessionId: "a session", to: "someone", partitionKey: "key", timeToLive: 60_000,
    applicationProperties: { color: "red", count: 7, half: 0.5, yes: true, none: null },
  };
  await bench.send(await bench.queue(), sent);
  const found = await one(bench.receiver());
  equal("found", Object.fromEntries(Object.keys(sent).map((name) => [name, found[name]])), sent);
  equal("number", String(found.sequenceNumber), "1");
  holds("a lock", found.lockedUntilUtc > new Date());
});
const comesBack = (body) => async (bench) => {
  await bench.send(await bench.queue(), { body });
  equal("body", (await one(bench.receiver())).body, body);
};
operation("body_null", comesBack(null));
operation("body_number", comesBack(7));
operation("body_text", comesBack("text"));
operation("body_list", comesBack([1, "a"]));
operation("body_bytes", comesBack(Buffer.from("bytes")));
operation("value_and_sequence_bodies", async (bench) => {
  await bench.send(await bench.queue(), { bodyType: "value", body: { a: 1 } }, { bodyType: "sequence", body: [1, "a"] });
  const found = await take(bench.receiver(), 2);
  equal("bodies", found.map((message) => [message._rawAmqpMessage.bodyType, message.body]), [["value", { a: 1 }], ["sequence", [1, "a"]]]);
});
operation("footer", async (bench) => {
  await bench.send(await bench.queue(), { bodyType: "data", body: "x", footer: { sum: 7 } });
  equal("footer", (await one(bench.receiver()))._rawAmqpMessage.footer, { sum: 7 });
});
operation("large_message", async (bench) => {
  await bench.send(await bench.queue(), { body: Buffer.alloc(200_000) });
  equal("length", (await one(bench.receiver())).body.length, 200_000);
});
operation("message_too_large", async (bench) => {
  const sender = bench.client.createSender(await bench.queue());
  // Not by far: then the link is closed, as the service does, and this SDK says nothing until its time is over.
  await fails("MessageSizeExceeded", () => sender.sendMessages({ body: Buffer.alloc(300_000) }));
  await sender.sendMessages({ body: "still works" });
});
operation("batch", async (bench) => {
  const sender = bench.client.createSender(await bench.queue());
  const batch = await sender.createMessageBatch();
  numbered(100).forEach((body) => holds("it fits", batch.tryAddMessage({ body })));
  holds("it does not", !batch.tryAddMessage({ body: Buffer.alloc(1_000_000) }));
  await sender.sendMessages(batch);
  equal("bodies", bodies(await take(bench.receiver(), 100)), numbered(100));
});
operation("list_of_messages", async (bench) => {
  await bench.client.createSender(await bench.queue()).sendMessages(texts(...numbered(20)));
  equal("bodies", bodies(await take(bench.receiver(), 20)), numbered(20));
});
operation("receive_and_delete", async (bench) => {
  await bench.send(await bench.queue(), ...texts("a", "b"));
  equal("bodies", bodies(await take(bench.receiver({ receiveMode: "receiveAndDelete" }), 2)), ["a", "b"]);
  equal("left", await bench.receiver().peekMessages(1), []);
});
operation("subscribe", async (bench) => {
  await bench.queue();
  const found = [];
  const subscription = bench.receiver().subscribe({ processMessage: async (message) => void found.push(message.body), processError: async () => {} });
  await bench.send(bench.entity, ...texts(...numbered(5)));
  await until("five messages", () => found.length === 5);
  await subscription.close();
  await until("none left", async () => (await bench.admin.getQueueRuntimeProperties(bench.entity)).totalMessageCount === 0);
});
operation("message_iterator", async (bench) => {
  await bench.send(await bench.queue(), ...texts("a", "b"));
  const receiver = bench.receiver();
  const found = [];
  for await (const message of receiver.getMessageIterator()) {
    found.push(message.body);
    await receiver.completeMessage(message);
    if (found.length === 2) break;
  }
  equal("bodies", found, ["a", "b"]);
});
operation("peek", async (bench) => {
  await bench.send(await bench.queue(), ...texts(...numbered(5)));
  const receiver = bench.receiver();
  equal("first", bodies(await receiver.peekMessages(2)), ["0", "1"]);
  equal("next", bodies(await receiver.peekMessages(9)), ["2", "3", "4"]);
  equal("from", bodies(await receiver.peekMessages(9, { fromSequenceNumber: Long.fromNumber(4) })), ["3", "4"]);
});
operation("schedule_and_cancel", async (bench) => {
  const sender = bench.client.createSender(await bench.queue());
  const [gone] = await sender.scheduleMessages(texts("gone", "kept"), new Date(Date.now() + 3_600_000));
  equal("state", (await bench.receiver().peekMessages(1))[0].state, "scheduled");
  await sender.cancelScheduledMessages(gone);
  equal("left", bodies(await bench.receiver().peekMessages(5)), ["kept"]);
});
operation("scheduled_message_comes_in_time", async (bench) => {
  const at = new Date(Date.now() + 2000);
  await bench.client.createSender(await bench.queue()).scheduleMessages({ body: "soon" }, at);
  equal("body", (await one(bench.receiver())).body, "soon");
  holds("not early", Date.now() >= at - 10);
});
operation("what_is_received_can_be_sent_again", async (bench) => {
  await bench.send(await bench.queue(), { body: "again", partitionKey: "key", applicationProperties: { color: "red" } });
  const receiver = bench.receiver();
  const first = await one(receiver);
  await receiver.completeMessage(first);
  await bench.send(bench.entity, first);
  const second = await one(receiver);
  equal("found", [second.body, second.partitionKey, second.applicationProperties], ["again", "key", { color: "red" }]);
});
operation("duplicates_are_dropped", async (bench) => {
  await bench.queue({ requiresDuplicateDetection: true });
  await bench.send(bench.entity, ...["a", "a", "b"].map((id) => ({ body: id, messageId: id })));
  equal("bodies", bodies(await take(bench.receiver(), 2)), ["a", "b"]);
});
operation("missing_queue_is_told", (bench) =>
  fails("MessagingEntityNotFound", () => bench.client.createSender(bench.entity).sendMessages({ body: "x" })));
operation("wrong_key_is_told", async (bench) => {
  const other = clientOf(stranger);
  await bench.queue();
  await fails("Unauthorized", () => other.createSender(bench.entity).sendMessages({ body: "x" })).finally(() => other.close());
});
operation("shared_access_signature", async (bench) => {
  const { createSasTokenProvider, parseConnectionString } = await import("@azure/core-amqp");
  await bench.queue();
  const parts = parseConnectionString(connectionString);
  const provider = createSasTokenProvider({ sharedAccessKeyName: parts.SharedAccessKeyName, sharedAccessKey: parts.SharedAccessKey });
  const { token } = await provider.getToken(parts.Endpoint.replace(/\/$/, ""));
  const emulator = parts.UseDevelopmentEmulator ? ";UseDevelopmentEmulator=true" : "";
  const client = clientOf(`Endpoint=${parts.Endpoint};SharedAccessSignature=${token}${emulator}`);
  try {
    await client.createSender(bench.entity).sendMessages({ body: "signed" });
  } finally {
    await client.close();
  }
  equal("body", (await one(bench.receiver())).body, "signed");
});

operation("abandon_with_changes", async (bench) => {
  await bench.send(await bench.queue(), { body: "x", applicationProperties: { a: 1 } });
  const receiver = bench.receiver();
  await receiver.abandonMessage(await one(receiver), { a: 2, b: true });
  const again = await one(receiver);
  equal("found", [again.applicationProperties, again.deliveryCount], [{ a: 2, b: true }, 1]);
});
operation("defer_and_fetch", async (bench) => {
  await bench.send(await bench.queue(), { body: "later" });
  const receiver = bench.receiver();
  const message = await one(receiver);
  await receiver.deferMessage(message);
  await nothing(receiver);
  const [fetched] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  equal("found", [fetched.body, fetched.state], ["later", "deferred"]);
  await receiver.completeMessage(fetched);
});
operation("deferring_counts", async (bench) => {
  await bench.send(await bench.queue(), { body: "later" });
  const receiver = bench.receiver();
  const message = await one(receiver);
  await receiver.deferMessage(message);
  equal("count", (await receiver.receiveDeferredMessages(message.sequenceNumber))[0].deliveryCount, 1);
});
operation("dead_letter", async (bench) => {
  await bench.send(await bench.queue(), { body: "bad" });
  const receiver = bench.receiver();
  await receiver.deadLetterMessage(await one(receiver), { deadLetterReason: "r", deadLetterErrorDescription: "d", more: 1 });
  const dead = bench.deadLetters();
  const message = await one(dead);
  equal("why", [message.deadLetterReason, message.deadLetterErrorDescription, message.applicationProperties.more], ["r", "d", 1]);
  await dead.completeMessage(message);
  await nothing(dead);
});
operation("dead_letters_do_not_count", async (bench) => {
  await bench.send(await bench.queue(), { body: "bad" });
  const receiver = bench.receiver();
  await receiver.deadLetterMessage(await one(receiver));
  const dead = bench.deadLetters();
  const first = await one(dead);
  await dead.abandonMessage(first);
  equal("count", (await one(dead)).deliveryCount, first.deliveryCount);
});
operation("too_many_deliveries", async (bench) => {
  await bench.send(await bench.queue({ maxDeliveryCount: 1 }), { body: "bad" });
  const receiver = bench.receiver();
  await receiver.abandonMessage(await one(receiver));
  equal("reason", (await one(bench.deadLetters())).deadLetterReason, "MaxDeliveryCountExceeded");
});
operation("expired_message", async (bench) => {
  await bench.send(await bench.queue({ deadLetteringOnMessageExpiration: true }), { body: "old", timeToLive: 1000 });
  equal("reason", (await one(bench.deadLetters())).deadLetterReason, "TTLExpiredException");
});
operation("renew_lock", async (bench) => {
  await bench.send(await bench.queue({ lockDuration: "PT5S" }), { body: "slow" });
  const receiver = bench.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const message = await one(receiver);
  for (let times = 0; times < 3; times += 1) {
    await sleep(2500);
    holds("a later end", (await receiver.renewMessageLock(message)) > Date.now() + 3000);
  }
  await receiver.completeMessage(message);
});
operation("lost_lock", async (bench) => {
  await bench.send(await bench.queue({ lockDuration: "PT5S" }), { body: "slow" });
  const receiver = bench.receiver({ maxAutoLockRenewalDurationInMs: 0 });
  const message = await one(receiver);
  await sleep(5500);
  await fails("MessageLockLost", () => receiver.completeMessage(message));
  equal("count", (await one(receiver)).deliveryCount, 1);
});
