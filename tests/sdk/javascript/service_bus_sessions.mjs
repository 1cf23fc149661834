// Sessions, topics and rules.
import { equal, fails, holds, numbered, operation, sleep, until } from "./trial.mjs";
import { bodies, nothing, one, take } from "./service_bus.mjs";

const within = (sessionId, body) => ({ sessionId, body });
const colored = (body, color, size) => ({ body, subject: color, applicationProperties: { color, size } });
const sessionQueue = (bench) => bench.queue({ requiresSession: true });

operation("session_in_order", async (bench) => {
  await bench.send(await sessionQueue(bench), within("a", "0"), within("b", "x"), within("a", "1"));
  const session = await bench.client.acceptSession(bench.entity, "a");
  const found = await take(session, 2);
  equal("bodies", bodies(found), numbered(2));
  for (const message of found) await session.completeMessage(message);
  await nothing(session);
});
operation("next_session", async (bench) => {
  await bench.send(await sessionQueue(bench), within("a", "0"), within("b", "1"));
  const found = [await bench.client.acceptNextSession(bench.entity), await bench.client.acceptNextSession(bench.entity)];
  equal("sessions", found.map((session) => session.sessionId).sort(), ["a", "b"]);
});
operation("session_state", async (bench) => {
  const session = await bench.client.acceptSession(await sessionQueue(bench), "a");
  equal("first", await session.getSessionState(), null);
  await session.setSessionState("half way");
  await session.close();
  const again = await bench.client.acceptSession(bench.entity, "a");
  equal("state", String(await again.getSessionState()), "half way");
});
operation("renew_session_lock", async (bench) => {
  await bench.send(await bench.queue({ requiresSession: true, lockDuration: "PT5S" }), within("a", "slow"));
  const session = await bench.client.acceptSession(bench.entity, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const message = await one(session);
  for (let times = 0; times < 3; times += 1) {
    await sleep(2500);
    holds("a later end", (await session.renewSessionLock()) > Date.now() + 3000);
  }
  await session.completeMessage(message);
});
operation("locked_session_is_told", async (bench) => {
  await bench.client.acceptSession(await sessionQueue(bench), "a");
  await fails("SessionCannotBeLocked", () => bench.client.acceptSession(bench.entity, "a"));
});
operation("session_settlements", async (bench) => {
  await bench.send(await sessionQueue(bench), within("a", "abandon"), within("a", "defer"), within("a", "dead"));
  const session = await bench.client.acceptSession(bench.entity, "a");
  await session.abandonMessage(await one(session));
  await session.completeMessage(await one(session));
  const deferred = await one(session);
  await session.deferMessage(deferred);
  await session.deadLetterMessage(await one(session));
  equal("body", (await session.receiveDeferredMessages(deferred.sequenceNumber))[0].body, "defer");
  equal("dead", (await one(bench.deadLetters())).sessionId, "a");
});
operation("peek_in_a_session", async (bench) => {
  await bench.send(await sessionQueue(bench), within("a", "0"), within("b", "x"), within("a", "1"));
  equal("bodies", bodies(await (await bench.client.acceptSession(bench.entity, "a")).peekMessages(9)), numbered(2));
});
operation("subscribe_to_a_session", async (bench) => {
  await bench.send(await sessionQueue(bench), within("a", "0"), within("a", "1"));
  const session = await bench.client.acceptSession(bench.entity, "a");
  const found = [];
  session.subscribe({ processMessage: async (message) => void found.push(message.body), processError: async () => {} });
  await until("both", () => found.length === 2);
  equal("bodies", found, numbered(2));
});
operation("every_subscription_gets_a_copy", async (bench) => {
  await bench.send(await bench.topic("one", "two"), { body: "news" });
  for (const name of ["one", "two"]) {
    equal("body", (await one(bench.client.createReceiver(bench.entity, name))).body, "news");
  }
});
operation("rules_over_amqp", async (bench) => {
  const rules = bench.client.createRuleManager(await bench.topic("s"), "s");
  await rules.deleteRule("$Default");
  await rules.createRule("red", { sqlExpression: "color = 'red' AND size > 5" });
  await rules.createRule("blue", { subject: "blue" }, { sqlExpression: "SET color = 'green'" });
  const found = [];
  for await (const rule of rules.listRules()) found.push(rule.name);
  equal("rules", found.sort(), ["blue", "red"]);
  await bench.send(bench.entity, colored("0", "red", 9), colored("x", "red", 1), colored("1", "blue", 1));
  const receiver = bench.client.createReceiver(bench.entity, "s");
  const messages = await take(receiver, 2);
  equal("bodies", bodies(messages), numbered(2));
  equal("changed", messages[1].applicationProperties.color, "green");
  await nothing(receiver);
});
operation("subscription_dead_letters", async (bench) => {
  await bench.send(await bench.topic("s"), { body: "bad" });
  const receiver = bench.client.createReceiver(bench.entity, "s");
  await receiver.deadLetterMessage(await one(receiver), { deadLetterReason: "r" });
  equal("reason", (await one(bench.client.createReceiver(bench.entity, "s", { subQueueType: "deadLetter" }))).deadLetterReason, "r");
});
