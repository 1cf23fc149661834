import com.azure.core.util.BinaryData;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClient;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerAsyncClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventHubProperties;
import com.azure.messaging.eventhubs.PartitionProperties;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.SendOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Publishing, and questions about a hub. */
final class EventHubsPublishing {
    static void add(Trial<EventHubsBench> trial) {
        trial.operation("publish_a_batch", bench -> {
            bench.publish(EventHubsBench.into("0"), EventHubsBench.text("a"), EventHubsBench.text("b"));
            Trial.equal("last", bench.producer().getPartitionProperties("0").getLastEnqueuedSequenceNumber(), 1L);
        });
        trial.operation("publish_a_list", bench -> {
            bench.producer().send(List.of(EventHubsBench.text("a"), EventHubsBench.text("b")), new SendOptions().setPartitionId("1"));
            Trial.equal("last", bench.producer().getPartitionProperties("1").getLastEnqueuedSequenceNumber(), 1L);
        });
        trial.operation("publish_asynchronously", bench -> {
            EventHubProducerAsyncClient producer = bench.keep(bench.clients().buildAsyncProducerClient());
            producer.createBatch(EventHubsBench.into("0")).flatMap(batch -> {
                batch.tryAdd(EventHubsBench.text("x"));
                return producer.send(batch);
            }).block(Duration.ofSeconds(15));
            Trial.equal("last", producer.getPartitionProperties("0").block(Duration.ofSeconds(15)).getLastEnqueuedSequenceNumber(), 0L);
        });
        trial.operation("by_key", bench -> {
            CreateBatchOptions key = new CreateBatchOptions().setPartitionKey("a key");
            bench.publish(key, EventHubsBench.text("one"));
            bench.publish(key, EventHubsBench.text("two"));
            EventHubConsumerClient consumer = bench.consumer();
            String partition = consumer.getPartitionProperties("0").isEmpty() ? "1" : "0";
            List<EventData> found = EventHubsBench.read(consumer, partition, 2, EventPosition.earliest());
            Trial.equal("found", List.of(EventHubsBench.bodies(found), found.get(0).getPartitionKey()), List.of(List.of("one", "two"), "a key"));
        });
        trial.operation("anywhere", bench -> {
            bench.publish(new CreateBatchOptions(), EventHubsBench.text("x"));
            bench.publish(new CreateBatchOptions(), EventHubsBench.text("y"));
            long count = 0;
            for (String id : List.of("0", "1")) {
                count += bench.producer().getPartitionProperties(id).getLastEnqueuedSequenceNumber() + 1;
            }
            Trial.equal("events", count, 2L);
        });
        trial.operation("every_property_comes_back", bench -> {
            EventData sent = EventHubsBench.text("body").setContentType("text/plain").setCorrelationId("correlation").setMessageId("id");
            sent.getProperties().putAll(Map.of("text", "t", "long", 8L, "half", 0.5, "yes", true));
            bench.publish(EventHubsBench.into("0"), sent);
            EventData found = bench.read(1, EventPosition.earliest()).get(0);
            Trial.equal("properties", new TreeMap<>(found.getProperties()), new TreeMap<>(sent.getProperties()));
            Trial.equal("the rest", List.of(found.getContentType(), found.getCorrelationId(), found.getMessageId(), found.getSequenceNumber()),
                List.of("text/plain", "correlation", "id", 0L));
            Trial.holds("a time", Duration.between(found.getEnqueuedTime(), Instant.now()).abs().toMinutes() < 5);
        });
        trial.operation("batch_of_many", bench -> {
            bench.numbers(500);
            Trial.equal("bodies", EventHubsBench.bodies(bench.read(500, EventPosition.earliest())), EventHubsBench.numbered(500));
        });
        trial.operation("batch_knows_its_bound", bench -> {
            EventDataBatch batch = bench.producer().createBatch(EventHubsBench.into("0"));
            Trial.holds("it fits", batch.tryAdd(new EventData(BinaryData.fromBytes(new byte[900_000]))));
            Trial.holds("it does not", !batch.tryAdd(new EventData(BinaryData.fromBytes(new byte[200_000]))));
            bench.producer().send(batch);
        });
        trial.operation("batch_with_a_bound_of_its_own", bench -> {
            EventDataBatch batch = bench.producer().createBatch(new CreateBatchOptions().setMaximumSizeInBytes(1000));
            Trial.holds("it fits", batch.tryAdd(new EventData(BinaryData.fromBytes(new byte[500]))));
            Trial.holds("it does not", !batch.tryAdd(new EventData(BinaryData.fromBytes(new byte[500]))));
        });
        trial.operation("large_event", bench -> {
            bench.publish(EventHubsBench.into("0"), new EventData(BinaryData.fromBytes(new byte[500_000])));
            Trial.equal("length", bench.read(1, EventPosition.earliest()).get(0).getBody().length, 500_000);
        });
        trial.operation("what_is_read_can_be_published_again", bench -> {
            EventData sent = EventHubsBench.text("again");
            sent.getProperties().put("color", "red");
            bench.publish(EventHubsBench.into("0"), sent);
            bench.publish(EventHubsBench.into("0"), bench.read(1, EventPosition.earliest()).get(0));
            Trial.equal("property", bench.read(2, EventPosition.earliest()).get(1).getProperties().get("color"), "red");
        });
        trial.operation("buffered_producer", bench -> {
            Queue<Throwable> problems = new ConcurrentLinkedQueue<>();
            EventHubBufferedProducerClientBuilder builder = new EventHubBufferedProducerClientBuilder()
                .connectionString(Trial.CONNECTION_STRING, bench.hub).retryOptions(EventHubsBench.quick())
                .maxWaitTime(Duration.ofMillis(200)).onSendBatchSucceeded(context -> { })
                .onSendBatchFailed(context -> problems.add(context.getThrowable()));
            buffered(builder);
            EventHubBufferedProducerClient producer = bench.keep(builder.buildClient());
            for (String body : EventHubsBench.numbered(20)) {
                producer.enqueueEvent(EventHubsBench.text(body), new SendOptions().setPartitionId("0"));
            }
            producer.flush();
            Trial.equal("problems", List.copyOf(problems), List.of());
            Trial.equal("last", bench.producer().getPartitionProperties("0").getLastEnqueuedSequenceNumber(), 19L);
        });
        trial.operation("buffered_producer_by_key", bench -> {
            Queue<Throwable> problems = new ConcurrentLinkedQueue<>();
            EventHubBufferedProducerClientBuilder builder = new EventHubBufferedProducerClientBuilder()
                .connectionString(Trial.CONNECTION_STRING, bench.hub).retryOptions(EventHubsBench.quick())
                .maxWaitTime(Duration.ofMillis(200)).onSendBatchSucceeded(context -> { })
                .onSendBatchFailed(context -> problems.add(context.getThrowable()));
            buffered(builder);
            EventHubBufferedProducerClient producer = bench.keep(builder.buildClient());
            producer.enqueueEvents(List.of(EventHubsBench.text("0"), EventHubsBench.text("1")), new SendOptions().setPartitionKey("k"));
            producer.flush();
            Trial.equal("problems", List.copyOf(problems), List.of());
        });
        trial.operation("properties_of_a_hub", bench -> {
            EventHubProperties found = bench.producer().getEventHubProperties();
            Trial.equal("hub", List.of(found.getName(), found.getPartitionIds().stream().toList()), List.of(bench.hub, List.of("0", "1")));
            Trial.holds("a time", Duration.between(found.getCreatedAt(), Instant.now()).toMinutes() < 60);
        });
        trial.operation("partition_ids", bench ->
            Trial.equal("ids", bench.producer().getPartitionIds().stream().toList(), List.of("0", "1")));
        trial.operation("properties_of_a_partition", bench -> {
            bench.numbers(3);
            PartitionProperties found = bench.producer().getPartitionProperties("0");
            Trial.equal("numbers", List.of(found.getBeginningSequenceNumber(), found.getLastEnqueuedSequenceNumber(), found.isEmpty()),
                List.of(0L, 2L, false));
        });
        trial.operation("properties_of_an_empty_partition", bench -> {
            PartitionProperties found = bench.producer().getPartitionProperties("1");
            Trial.equal("facts", List.of(found.getLastEnqueuedSequenceNumber(), found.isEmpty()), List.of(-1L, true));
        });
        trial.operation("missing_hub_is_told", bench -> {
            EventHubProducerClient producer = bench.keep(bench.clients(Trial.CONNECTION_STRING, bench.hub + "-missing").buildProducerClient());
            Trial.fails("could not be found", () -> producer.createBatch());
        });
        trial.operation("missing_partition_is_told", bench -> Trial.fails(
            "The specified partition is invalid for an EventHub partition sender or receiver",
            () -> bench.publish(EventHubsBench.into("9"), EventHubsBench.text("x"))));
        trial.operation("wrong_key_is_told", bench -> {
            EventHubProducerClient producer = bench.keep(bench.clients(Trial.stranger(), bench.hub).buildProducerClient());
            Trial.fails("InvalidSignature", () -> producer.createBatch());
        });
        trial.operation("hub_in_the_connection_string", bench -> {
            EventHubProducerClient producer =
                bench.keep(bench.clients(Trial.CONNECTION_STRING, bench.hub).buildProducerClient());
            Trial.equal("name", producer.getEventHubName(), bench.hub);
            producer.send(List.of(EventHubsBench.text("x")));
        });
    }

    private static void buffered(EventHubBufferedProducerClientBuilder builder) {
        if (Trial.MODE.equals("websocket")) {
            builder.transportType(com.azure.core.amqp.AmqpTransportType.AMQP_WEB_SOCKETS);
        }
        if (!Trial.ADDRESS.isEmpty()) {
            builder.customEndpointAddress("https://" + Trial.ADDRESS);
        }
    }
}
