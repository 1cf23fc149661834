import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;

/** What becomes of a message. */
final class ServiceBusSettling {
    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("abandon_with_changes", bench -> {
            ServiceBusMessage sent = ServiceBusBench.text("x");
            sent.getApplicationProperties().put("a", "one");
            bench.send(bench.queue(), sent);
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            receiver.abandon(ServiceBusBench.one(receiver), new AbandonOptions().setPropertiesToModify(Map.of("a", "two", "b", true)));
            ServiceBusReceivedMessage again = ServiceBusBench.one(receiver);
            Trial.equal("properties", again.getApplicationProperties(), Map.of("a", "two", "b", true));
            Trial.equal("count", again.getDeliveryCount(), 1L);
        });
        trial.operation("defer_and_fetch", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("later"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("b", true)));
            ServiceBusBench.nothing(receiver);
            ServiceBusReceivedMessage fetched = receiver.receiveDeferredMessage(message.getSequenceNumber());
            Trial.equal("fetched", List.of(fetched.getBody().toString(), fetched.getState(), fetched.getApplicationProperties().get("b")),
                List.of("later", ServiceBusMessageState.DEFERRED, true));
            receiver.complete(fetched);
            Trial.fails("", () -> receiver.receiveDeferredMessage(message.getSequenceNumber()).getBody());
        });
        trial.operation("deferring_counts", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("later"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            receiver.defer(message);
            Trial.equal("count", receiver.receiveDeferredMessage(message.getSequenceNumber()).getDeliveryCount(), 1L);
        });
        trial.operation("fetch_a_batch_of_deferred", bench -> {
            bench.sender(bench.queue()).sendMessages(List.of(ServiceBusBench.text("0"), ServiceBusBench.text("1")));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusBench.take(receiver, 2).forEach(receiver::defer);
            Trial.equal("bodies", ServiceBusBench.bodies(receiver.receiveDeferredMessageBatch(List.of(1L, 2L))), ServiceBusBench.numbered(2));
        });
        trial.operation("dead_letter", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("bad"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            receiver.deadLetter(ServiceBusBench.one(receiver), new DeadLetterOptions().setDeadLetterReason("Unreadable")
                .setDeadLetterErrorDescription("no such format").setPropertiesToModify(Map.of("more", 1L)));
            ServiceBusBench.nothing(receiver);
            ServiceBusReceiverClient dead = bench.deadLetters(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(dead);
            Trial.equal("why", List.of(message.getDeadLetterReason(), message.getDeadLetterErrorDescription(),
                message.getApplicationProperties().get("more")), List.of("Unreadable", "no such format", 1L));
            dead.complete(message);
            ServiceBusBench.nothing(dead);
        });
        trial.operation("dead_letters_do_not_count", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("bad"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            receiver.deadLetter(ServiceBusBench.one(receiver));
            ServiceBusReceiverClient dead = bench.deadLetters(bench.entity);
            ServiceBusReceivedMessage first = ServiceBusBench.one(dead);
            dead.abandon(first);
            Trial.equal("count", ServiceBusBench.one(dead).getDeliveryCount(), first.getDeliveryCount());
        });
        trial.operation("too_many_deliveries", bench -> {
            bench.send(bench.queue(new CreateQueueOptions().setMaxDeliveryCount(2)), ServiceBusBench.text("bad"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            receiver.abandon(ServiceBusBench.one(receiver));
            receiver.abandon(ServiceBusBench.one(receiver));
            Trial.equal("reason", ServiceBusBench.one(bench.deadLetters(bench.entity)).getDeadLetterReason(), "MaxDeliveryCountExceeded");
        });
        trial.operation("expired_message", bench -> {
            bench.queue(new CreateQueueOptions().setDeadLetteringOnMessageExpiration(true));
            bench.send(bench.entity, ServiceBusBench.text("old").setTimeToLive(Duration.ofSeconds(1)));
            Trial.equal("reason", ServiceBusBench.one(bench.deadLetters(bench.entity)).getDeadLetterReason(), "TTLExpiredException");
        });
        trial.operation("renew_lock", bench -> {
            bench.send(bench.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5))), ServiceBusBench.text("slow"));
            ServiceBusReceiverClient receiver = bench.keep(ServiceBusBench.clients().receiver().queueName(bench.entity)
                .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            for (int times = 0; times < 3; times++) {
                Thread.sleep(2500);
                Trial.holds("a later end", receiver.renewMessageLock(message).isAfter(OffsetDateTime.now().plusSeconds(3)));
            }
            receiver.complete(message);
            ServiceBusBench.nothing(receiver);
        });
        trial.operation("lock_is_renewed_by_the_sdk", bench -> {
            bench.send(bench.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5))), ServiceBusBench.text("slow"));
            ServiceBusReceiverClient receiver = bench.keep(ServiceBusBench.clients().receiver().queueName(bench.entity)
                .maxAutoLockRenewDuration(Duration.ofSeconds(30)).disableAutoComplete().buildClient());
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            Thread.sleep(8000);
            receiver.complete(message);
            ServiceBusBench.nothing(receiver);
        });
        trial.operation("lost_lock", bench -> {
            bench.send(bench.queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5))), ServiceBusBench.text("slow"));
            ServiceBusReceiverClient receiver = bench.keep(ServiceBusBench.clients().receiver().queueName(bench.entity)
                .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            Thread.sleep(5500);
            Trial.fails("", () -> receiver.renewMessageLock(message));
            Trial.fails("", () -> receiver.complete(message));
            Trial.equal("count", ServiceBusBench.one(receiver).getDeliveryCount(), 1L);
        });
        trial.operation("forwarding", bench -> {
            bench.queue();
            bench.admin.createQueue(bench.entity + "-source", new CreateQueueOptions().setForwardTo(bench.entity));
            bench.send(bench.entity + "-source", ServiceBusBench.text("moved"));
            Trial.equal("body", ServiceBusBench.one(bench.receiver(bench.entity)).getBody().toString(), "moved");
        });
    }
}
