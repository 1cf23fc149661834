import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.AuthorizationRule;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.NamespaceProperties;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/** Entities and rules over HTTP. */
final class ServiceBusAdministration {
    private static boolean isRecent(OffsetDateTime time) {
        return Duration.between(time, OffsetDateTime.now()).abs().toMinutes() < 60;
    }

    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("life_of_a_queue", bench -> {
            bench.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45)).setUserMetadata("<ours> & theirs"));
            QueueProperties found = bench.admin.getQueue(bench.entity);
            Trial.equal("found", List.of(found.getLockDuration(), found.getUserMetadata()), List.of(Duration.ofSeconds(45), "<ours> & theirs"));
            Trial.equal("updated", bench.admin.updateQueue(found.setMaxDeliveryCount(9)).getMaxDeliveryCount(), 9);
            Trial.holds("exists", bench.admin.getQueueExists(bench.entity));
            bench.admin.deleteQueue(bench.entity);
            Trial.holds("gone", !bench.admin.getQueueExists(bench.entity));
        });
        trial.operation("runtime_of_a_queue", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("a"), ServiceBusBench.text("b"));
            QueueRuntimeProperties found = bench.admin.getQueueRuntimeProperties(bench.entity);
            Trial.equal("counts", List.of(found.getTotalMessageCount(), (long) found.getActiveMessageCount()), List.of(2L, 2L));
            Trial.holds("times", isRecent(found.getCreatedAt()) && isRecent(found.getUpdatedAt()) && isRecent(found.getAccessedAt()));
        });
        trial.operation("list_queues", bench -> {
            bench.queue();
            Trial.holds("listed", bench.admin.listQueues().stream().anyMatch(queue -> queue.getName().equals(bench.entity)));
        });
        trial.operation("life_of_a_topic", bench -> {
            TopicProperties found = bench.admin.getTopic(bench.topic("s"));
            Trial.equal("updated", bench.admin.updateTopic(found.setUserMetadata("changed")).getUserMetadata(), "changed");
            Trial.equal("subscriptions", bench.admin.getTopicRuntimeProperties(bench.entity).getSubscriptionCount(), 1);
            Trial.holds("listed", bench.admin.listTopics().stream().anyMatch(topic -> topic.getName().equals(bench.entity)));
            bench.admin.deleteTopic(bench.entity);
            Trial.holds("gone", !bench.admin.getTopicExists(bench.entity));
        });
        trial.operation("unused_topic_was_accessed", bench -> // when its subscription was made
            Trial.holds("a real time", isRecent(bench.admin.getTopicRuntimeProperties(bench.topic("s")).getAccessedAt())));
        trial.operation("life_of_a_subscription", bench -> {
            SubscriptionProperties found = bench.admin.getSubscription(bench.topic("s"), "s");
            Trial.equal("updated", bench.admin.updateSubscription(found.setMaxDeliveryCount(7)).getMaxDeliveryCount(), 7);
            bench.publish(bench.entity, ServiceBusBench.text("a"));
            Trial.equal("count", bench.admin.getSubscriptionRuntimeProperties(bench.entity, "s").getActiveMessageCount(), 1);
            Trial.equal("listed", bench.admin.listSubscriptions(bench.entity).stream().count(), 1L);
            bench.admin.deleteSubscription(bench.entity, "s");
            Trial.equal("listed", bench.admin.listSubscriptions(bench.entity).stream().count(), 0L);
        });
        trial.operation("unused_subscription_was_accessed", bench ->
            Trial.holds("a real time", isRecent(bench.admin.getSubscriptionRuntimeProperties(bench.topic("s"), "s").getAccessedAt())));
        trial.operation("life_of_a_rule", bench -> {
            bench.topic("s");
            bench.admin.createRule(bench.entity, "r", "s", new CreateRuleOptions(new SqlRuleFilter("a = 1")));
            RuleProperties found = bench.admin.getRule(bench.entity, "s", "r");
            Trial.equal("filter", ((SqlRuleFilter) found.getFilter()).getSqlExpression(), "a = 1");
            found.setFilter(new SqlRuleFilter("a = 2"));
            Trial.equal("updated", ((SqlRuleFilter) bench.admin.updateRule(bench.entity, "s", found).getFilter()).getSqlExpression(), "a = 2");
            bench.admin.deleteRule(bench.entity, "s", "r");
            Trial.equal("rules", bench.admin.listRules(bench.entity, "s").stream().count(), 1L);
        });
        trial.operation("first_rule_of_a_subscription", bench -> {
            bench.topic();
            bench.admin.createSubscription(bench.entity, "s", "mine", new CreateSubscriptionOptions(),
                new CreateRuleOptions(new SqlRuleFilter("a = 1")));
            Trial.equal("rules", bench.admin.listRules(bench.entity, "s").stream().map(RuleProperties::getName).toList(), List.of("mine"));
        });
        trial.operation("missing_subscription_does_not_exist", bench ->
            Trial.holds("not there", !bench.admin.getSubscriptionExists(bench.topic(), "s")));
        trial.operation("rules_are_listed_by_name", bench -> {
            bench.topic("s");
            for (String name : List.of("z", "a", "m")) {
                bench.admin.createRule(bench.entity, name, "s", new CreateRuleOptions(new SqlRuleFilter("a = 1")));
            }
            List<String> found = new ArrayList<>();
            bench.admin.listRules(bench.entity, "s").forEach(rule -> found.add(rule.getName()));
            Trial.equal("rules", found, List.of("$Default", "a", "m", "z"));
        });
        trial.operation("namespace_properties", bench -> {
            NamespaceProperties found = bench.admin.getNamespaceProperties();
            Trial.holds("a name and a time", !found.getName().isEmpty() && found.getCreatedTime() != null);
        });
        trial.operation("authorization_rules", bench -> {
            CreateQueueOptions options = new CreateQueueOptions();
            options.getAuthorizationRules().add(new SharedAccessAuthorizationRule("reader", List.of(AccessRights.SEND, AccessRights.LISTEN)));
            bench.queue(options);
            AuthorizationRule found = bench.admin.getQueue(bench.entity).getAuthorizationRules().get(0);
            Trial.equal("rights", found.getAccessRights(), List.of(AccessRights.SEND, AccessRights.LISTEN));
        });
        trial.operation("existing_and_missing_are_told", bench -> {
            bench.queue();
            Trial.fails("", () -> bench.admin.createQueue(bench.entity));
            Trial.fails("", () -> bench.admin.getQueue(bench.entity + "-missing"));
            Trial.fails("", () -> bench.admin.deleteQueue(bench.entity + "-missing"));
        });
        trial.operation("wrong_admin_key_is_told", bench ->
            Trial.fails("InvalidSignature", () -> ServiceBusBench.administration(Trial.stranger()).createQueue(bench.entity)));
    }
}
