// Entities and rules over HTTP.
import { equal, fails, holds, operation, stranger } from "./trial.mjs";
import { adminOf } from "./service_bus.mjs";

const isRecent = (time) => Math.abs(Date.now() - new Date(time)) < 3_600_000;

operation("life_of_a_queue", async (bench) => {
  await bench.queue({ lockDuration: "PT45S", userMetadata: "<ours> & theirs" });
  const found = await bench.admin.getQueue(bench.entity);
  equal("found", [found.lockDuration, found.userMetadata], ["PT45S", "<ours> & theirs"]);
  equal("updated", (await bench.admin.updateQueue({ ...found, maxDeliveryCount: 9 })).maxDeliveryCount, 9);
  await bench.admin.deleteQueue(bench.entity);
  holds("gone", !(await bench.admin.queueExists(bench.entity)));
});
operation("runtime_of_a_queue", async (bench) => {
  await bench.queue();
  const found = await bench.admin.getQueueRuntimeProperties(bench.entity);
  equal("count", found.totalMessageCount, 0);
  holds("times", isRecent(found.createdAt) && isRecent(found.modifiedAt));
});
operation("life_of_a_topic", async (bench) => {
  const found = await bench.admin.getTopic(await bench.topic("s"));
  equal("updated", (await bench.admin.updateTopic({ ...found, userMetadata: "changed" })).userMetadata, "changed");
  equal("subscriptions", (await bench.admin.getTopicRuntimeProperties(bench.entity)).subscriptionCount, 1);
  await bench.admin.deleteTopic(bench.entity);
  holds("gone", !(await bench.admin.topicExists(bench.entity)));
});
operation("topic_is_accessed_by_its_first_subscription", async (bench) => {
  await bench.topic();
  holds("never", !isRecent((await bench.admin.getTopicRuntimeProperties(bench.entity)).accessedAt));
  await bench.admin.createSubscription(bench.entity, "s");
  holds("a real time", isRecent((await bench.admin.getTopicRuntimeProperties(bench.entity)).accessedAt));
});
operation("life_of_a_subscription", async (bench) => {
  const found = await bench.admin.getSubscription(await bench.topic("s"), "s");
  equal("updated", (await bench.admin.updateSubscription({ ...found, maxDeliveryCount: 7 })).maxDeliveryCount, 7);
  await bench.admin.deleteSubscription(bench.entity, "s");
  holds("gone", !(await bench.admin.subscriptionExists(bench.entity, "s")));
});
operation("unused_subscription_was_accessed", async (bench) =>
  holds("a real time", isRecent((await bench.admin.getSubscriptionRuntimeProperties(await bench.topic("s"), "s")).accessedAt)));
operation("life_of_a_rule", async (bench) => {
  await bench.topic("s");
  await bench.admin.createRule(bench.entity, "s", "r", { correlationId: "c", applicationProperties: { five: 5 } }, { sqlExpression: "SET a = 1" });
  const found = await bench.admin.getRule(bench.entity, "s", "r");
  equal("filter", [found.filter.correlationId, found.filter.applicationProperties], ["c", { five: 5 }]);
  const updated = await bench.admin.updateRule(bench.entity, "s", { ...found, filter: { sqlExpression: "a = 1" } });
  equal("updated", updated.filter.sqlExpression, "a = 1");
  await bench.admin.deleteRule(bench.entity, "s", "r");
  holds("gone", !(await bench.admin.ruleExists(bench.entity, "s", "r")));
});
operation("rules_are_listed_by_name", async (bench) => {
  await bench.topic("s");
  for (const name of ["z", "a", "m"]) await bench.admin.createRule(bench.entity, "s", name, { sqlExpression: "1=1" });
  const found = [];
  for await (const rule of bench.admin.listRules(bench.entity, "s")) found.push(rule.name);
  equal("rules", found, ["$Default", "a", "m", "z"]);
});
operation("list_queues", async (bench) => {
  await bench.queue();
  const found = [];
  for await (const queue of bench.admin.listQueues()) found.push(queue.name);
  holds("listed", found.includes(bench.entity));
});
operation("namespace_properties", async (bench) =>
  holds("a name", (await bench.admin.getNamespaceProperties()).name !== ""));
operation("authorization_rules", async (bench) => {
  const rule = { claimType: "SharedAccessKey", keyName: "reader", accessRights: ["Send", "Listen"], primaryKey: "p".repeat(43) + "=", secondaryKey: "s".repeat(43) + "=" };
  await bench.queue({ authorizationRules: [rule] });
  equal("rights", (await bench.admin.getQueue(bench.entity)).authorizationRules[0].accessRights, ["Send", "Listen"]);
});
operation("existing_and_missing_are_told", async (bench) => {
  await bench.queue();
  await fails("MessageEntityAlreadyExistsError", () => bench.admin.createQueue(bench.entity));
  await fails("MessageEntityNotFoundError", () => bench.admin.getQueue(`${bench.entity}-missing`));
});
operation("wrong_admin_key_is_told", (bench) => fails("UnauthorizedRequestError", () => adminOf(stranger).createQueue(bench.entity)));
