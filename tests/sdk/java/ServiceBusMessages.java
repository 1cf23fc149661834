import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Sending, receiving, peeking, scheduling. */
final class ServiceBusMessages {
    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("send_receive_complete", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("hello"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            Trial.equal("body", message.getBody().toString(), "hello");
            Trial.equal("count", message.getDeliveryCount(), 0L);
            receiver.complete(message);
            ServiceBusBench.nothing(receiver);
        });
        trial.operation("every_property_comes_back", ServiceBusMessages::everyProperty);
        trial.operation("value_body", bench -> {
            bench.send(bench.queue(), new ServiceBusMessage(AmqpMessageBody.fromValue("a value")));
            Trial.equal("body", ServiceBusBench.one(bench.receiver(bench.entity)).getRawAmqpMessage().getBody().getValue(), "a value");
        });
        trial.operation("sequence_body", bench -> {
            bench.send(bench.queue(), new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of("a", 1L, true))));
            Trial.equal("body", ServiceBusBench.one(bench.receiver(bench.entity)).getRawAmqpMessage().getBody().getSequence(),
                List.of("a", 1L, true));
        });
        trial.operation("large_message", bench -> {
            bench.send(bench.queue(), new ServiceBusMessage(BinaryData.fromBytes(new byte[200_000])));
            Trial.equal("length", ServiceBusBench.one(bench.receiver(bench.entity)).getBody().toBytes().length, 200_000);
        });
        trial.operation("message_too_large", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            Trial.fails("", () -> sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[2_000_000]))));
            sender.sendMessage(ServiceBusBench.text("still works"));
        });
        trial.operation("list_of_messages", bench -> {
            List<ServiceBusMessage> messages = new ArrayList<>();
            ServiceBusBench.numbered(50).forEach(body -> messages.add(ServiceBusBench.text(body)));
            bench.sender(bench.queue()).sendMessages(messages);
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.receiver(bench.entity), 50)), ServiceBusBench.numbered(50));
        });
        trial.operation("batch", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            ServiceBusBench.numbered(50).forEach(body -> batch.tryAddMessage(ServiceBusBench.text(body)));
            sender.sendMessages(batch);
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.receiver(bench.entity), 50)), ServiceBusBench.numbered(50));
        });
        trial.operation("batch_knows_its_bound", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            Trial.holds("it fits", batch.tryAddMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[200_000]))));
            Trial.holds("it does not", !batch.tryAddMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[100_000]))));
            sender.sendMessages(batch);
        });
        trial.operation("receive_and_delete", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("a"), ServiceBusBench.text("b"));
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.deleting(bench.entity), 2)), List.of("a", "b"));
            Trial.equal("left", bench.receiver(bench.entity).peekMessage(), null);
        });
        trial.operation("asynchronous_receive", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("0"), ServiceBusBench.text("1"), ServiceBusBench.text("2"));
            ServiceBusReceiverAsyncClient receiver = bench.keep(
                ServiceBusBench.clients().receiver().queueName(bench.entity).disableAutoComplete().buildAsyncClient());
            List<ServiceBusReceivedMessage> found = receiver.receiveMessages()
                .concatMap(message -> receiver.complete(message).thenReturn(message)).take(3).collectList().block(Duration.ofSeconds(15));
            Trial.equal("bodies", ServiceBusBench.bodies(found), ServiceBusBench.numbered(3));
        });
        trial.operation("prefetch", bench -> {
            bench.sender(bench.queue()).sendMessages(List.of(ServiceBusBench.text("0"), ServiceBusBench.text("1")));
            ServiceBusReceiverClient receiver = bench.keep(
                ServiceBusBench.clients().receiver().queueName(bench.entity).prefetchCount(10).disableAutoComplete().buildClient());
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(receiver, 2)), ServiceBusBench.numbered(2));
        });
        trial.operation("peek", bench -> {
            for (String body : ServiceBusBench.numbered(5)) {
                bench.send(body.equals("0") ? bench.queue() : bench.entity, ServiceBusBench.text(body));
            }
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            Trial.equal("first", receiver.peekMessage().getBody().toString(), "0");
            Trial.equal("next", ServiceBusBench.bodies(receiver.peekMessages(9)), List.of("1", "2", "3", "4"));
            Trial.equal("from", ServiceBusBench.bodies(receiver.peekMessages(9, 4)), List.of("3", "4"));
        });
        trial.operation("schedule_and_cancel", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            Long gone = sender.scheduleMessage(ServiceBusBench.text("gone"), OffsetDateTime.now().plusHours(1));
            sender.scheduleMessages(List.of(ServiceBusBench.text("kept")), OffsetDateTime.now().plusHours(1))
                .forEach(number -> { }); // asks only when it is walked over
            Trial.equal("state", bench.receiver(bench.entity).peekMessage().getState(), ServiceBusMessageState.SCHEDULED);
            sender.cancelScheduledMessage(gone);
            Trial.equal("left", ServiceBusBench.bodies(bench.receiver(bench.entity).peekMessages(9)), List.of("kept"));
        });
        trial.operation("scheduled_message_comes_in_time", bench -> {
            bench.sender(bench.queue()).scheduleMessage(ServiceBusBench.text("soon"), OffsetDateTime.now().plusSeconds(2));
            ServiceBusReceivedMessage message = ServiceBusBench.one(bench.receiver(bench.entity));
            Trial.equal("body", message.getBody().toString(), "soon");
            Trial.holds("not early", !OffsetDateTime.now().isBefore(message.getScheduledEnqueueTime()));
        });
        trial.operation("what_is_received_can_be_sent_again", bench -> {
            ServiceBusMessage sent = ServiceBusBench.text("again").setPartitionKey("key").setMessageId("id");
            sent.getApplicationProperties().put("color", "red");
            bench.send(bench.queue(), sent);
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage first = ServiceBusBench.one(receiver);
            receiver.complete(first);
            bench.send(bench.entity, new ServiceBusMessage(first));
            ServiceBusReceivedMessage second = ServiceBusBench.one(receiver);
            Trial.equal("key", second.getPartitionKey(), "key");
            Trial.equal("properties", second.getApplicationProperties(), sent.getApplicationProperties());
        });
        trial.operation("duplicates_are_dropped", bench -> {
            bench.queue(new CreateQueueOptions().setDuplicateDetectionRequired(true));
            for (String id : List.of("a", "a", "b", "a")) {
                bench.send(bench.entity, ServiceBusBench.text(id).setMessageId(id));
            }
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(receiver, 2)), List.of("a", "b"));
            ServiceBusBench.nothing(receiver);
        });
        trial.operation("partitioned_queue", bench -> {
            bench.queue(new CreateQueueOptions().setPartitioningEnabled(true));
            for (String body : ServiceBusBench.numbered(5)) {
                bench.send(bench.entity, ServiceBusBench.text(body).setPartitionKey("one key"));
            }
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.receiver(bench.entity), 5)), ServiceBusBench.numbered(5));
        });
        trial.operation("missing_queue_is_told", bench -> {
            Trial.fails("could not be found", () -> bench.sender(bench.entity).sendMessage(ServiceBusBench.text("x")));
            Trial.fails("", () -> ServiceBusBench.one(bench.receiver(bench.entity))); // the reason is in its log
        });
        trial.operation("wrong_key_is_told", bench -> {
            ServiceBusSenderClient sender =
                bench.keep(ServiceBusBench.clients(Trial.stranger()).sender().queueName(bench.queue()).buildClient());
            Trial.fails("InvalidSignature", () -> sender.sendMessage(ServiceBusBench.text("x")));
        });
    }

    private static void everyProperty(ServiceBusBench bench) {
        ServiceBusMessage sent = ServiceBusBench.text("body").setMessageId("id").setSubject("label").setCorrelationId("correlation")
            .setContentType("text/plain").setReplyTo("somewhere").setReplyToSessionId("a session").setTo("someone")
            .setPartitionKey("key").setTimeToLive(Duration.ofMinutes(1));
        sent.getApplicationProperties().putAll(Map.of("text", "t", "int", 7, "long", 8L, "half", 0.5, "yes", true));
        bench.send(bench.queue(), sent);
        ServiceBusReceivedMessage found = ServiceBusBench.one(bench.receiver(bench.entity));
        Trial.equal("application properties", new TreeMap<>(found.getApplicationProperties()), new TreeMap<>(sent.getApplicationProperties()));
        Trial.equal("the rest", List.of(found.getMessageId(), found.getSubject(), found.getCorrelationId(), found.getContentType(),
            found.getReplyTo(), found.getReplyToSessionId(), found.getTo(), found.getPartitionKey(), found.getTimeToLive()),
            List.of("id", "label", "correlation", "text/plain", "somewhere", "a session", "someone", "key", Duration.ofMinutes(1)));
        Trial.equal("number", found.getSequenceNumber(), 1L);
        Trial.holds("a lock", found.getLockedUntil().isAfter(OffsetDateTime.now()));
        Trial.equal("life", Duration.between(found.getEnqueuedTime(), found.getExpiresAt()), Duration.ofMinutes(1));
        Trial.equal("state", found.getState(), ServiceBusMessageState.ACTIVE);
    }
}
