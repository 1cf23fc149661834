import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Topics, and rules over AMQP. */
final class ServiceBusTopics {
    private static ServiceBusMessage colored(String body, String color, long size) {
        ServiceBusMessage message = ServiceBusBench.text(body).setSubject(color);
        message.getApplicationProperties().put("color", color);
        message.getApplicationProperties().put("size", size);
        return message;
    }

    private static void subscribe(ServiceBusBench bench, RuleFilter filter, String action) {
        CreateRuleOptions rule = new CreateRuleOptions(filter);
        if (action != null) {
            rule.setAction(new SqlRuleAction(action));
        }
        // In three steps: the older version names a first rule by an element that the service does not know.
        bench.admin.createSubscription(bench.entity, "s");
        bench.admin.deleteRule(bench.entity, "s", "$Default");
        bench.admin.createRule(bench.entity, "only", "s", rule);
    }

    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("every_subscription_gets_a_copy", bench -> {
            bench.publish(bench.topic("one", "two"), ServiceBusBench.text("news"));
            for (String name : List.of("one", "two")) {
                ServiceBusReceiverClient receiver = bench.subscriber(bench.entity, name);
                ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
                Trial.equal("body", message.getBody().toString(), "news");
                receiver.complete(message);
            }
        });
        trial.operation("sql_filter", bench -> {
            bench.topic();
            subscribe(bench, new SqlRuleFilter("color = 'red' AND size > 5"), null);
            bench.publish(bench.entity, colored("0", "red", 9), colored("x", "red", 1), colored("x", "blue", 9), colored("1", "red", 6));
            ServiceBusReceiverClient receiver = bench.subscriber(bench.entity, "s");
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(receiver, 2)), ServiceBusBench.numbered(2));
            ServiceBusBench.nothing(receiver);
        });
        trial.operation("correlation_filter", bench -> {
            bench.topic();
            CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("red");
            filter.getProperties().put("color", "red"); // this SDK sends every value as text
            subscribe(bench, filter, null);
            bench.publish(bench.entity, colored("x", "blue", 9), colored("0", "red", 9));
            Trial.equal("body", ServiceBusBench.one(bench.subscriber(bench.entity, "s")).getBody().toString(), "0");
        });
        trial.operation("action_changes_the_copy", bench -> {
            bench.topic("plain");
            subscribe(bench, new SqlRuleFilter("1=1"), "SET color = 'green'");
            bench.publish(bench.entity, colored("0", "red", 9));
            Trial.equal("changed", ServiceBusBench.one(bench.subscriber(bench.entity, "s")).getApplicationProperties().get("color"), "green");
            Trial.equal("plain", ServiceBusBench.one(bench.subscriber(bench.entity, "plain")).getApplicationProperties().get("color"), "red");
        });
        trial.operation("rules_over_amqp", bench -> {
            bench.topic("s");
            ServiceBusRuleManagerClient rules = bench.keep(
                ServiceBusBench.clients().ruleManager().topicName(bench.entity).subscriptionName("s").buildClient());
            rules.deleteRule("$Default");
            rules.createRule("red", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")));
            rules.createRule("blue", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("blue")).setAction(new SqlRuleAction("SET seen = 1")));
            Set<String> found = new TreeSet<>();
            rules.listRules().forEach(rule -> found.add(rule.getName()));
            Trial.equal("rules", found, Set.of("red", "blue"));
            bench.publish(bench.entity, colored("0", "red", 1), colored("x", "green", 1), colored("1", "blue", 1));
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.subscriber(bench.entity, "s"), 2)), ServiceBusBench.numbered(2));
        });
        trial.operation("subscription_dead_letters", bench -> {
            bench.publish(bench.topic("s"), ServiceBusBench.text("bad"));
            ServiceBusReceiverClient receiver = bench.subscriber(bench.entity, "s");
            receiver.deadLetter(ServiceBusBench.one(receiver), new DeadLetterOptions().setDeadLetterReason("r"));
            ServiceBusReceiverClient dead = bench.keep(ServiceBusBench.clients().receiver().topicName(bench.entity).subscriptionName("s")
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
            Trial.equal("reason", ServiceBusBench.one(dead).getDeadLetterReason(), "r");
        });
        trial.operation("subscription_forwards_to_a_queue", bench -> {
            bench.admin.createQueue(bench.entity + "-queue");
            bench.topic();
            bench.admin.createSubscription(bench.entity, "s", new CreateSubscriptionOptions().setForwardTo(bench.entity + "-queue"));
            bench.publish(bench.entity, ServiceBusBench.text("moved"));
            Trial.equal("body", ServiceBusBench.one(bench.receiver(bench.entity + "-queue")).getBody().toString(), "moved");
        });
    }
}
