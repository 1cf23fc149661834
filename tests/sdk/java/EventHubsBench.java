import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Of one operation: its clients, and short words for what all of them do. The hub has two partitions and is there before. */
final class EventHubsBench implements AutoCloseable {
    final String hub;
    private final List<AutoCloseable> opened = new ArrayList<>();
    private EventHubProducerClient producer;

    EventHubsBench(String hub) {
        this.hub = hub;
    }

    static AmqpRetryOptions quick() {
        return new AmqpRetryOptions().setMaxRetries(1).setTryTimeout(Duration.ofSeconds(10));
    }

    EventHubClientBuilder clients(String connectionString, String name) {
        EventHubClientBuilder builder = new EventHubClientBuilder().connectionString(connectionString, name).retryOptions(quick());
        if (Trial.MODE.equals("websocket")) {
            builder.transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        }
        return Trial.ADDRESS.isEmpty() ? builder : builder.customEndpointAddress("https://" + Trial.ADDRESS);
    }

    EventHubClientBuilder clients() {
        return clients(Trial.CONNECTION_STRING, hub);
    }

    <T extends AutoCloseable> T keep(T client) {
        opened.add(client);
        return client;
    }

    EventHubProducerClient producer() {
        if (producer == null) {
            producer = keep(clients().buildProducerClient());
        }
        return producer;
    }

    EventHubConsumerClient consumer(String group) {
        return keep(clients().consumerGroup(group).buildConsumerClient());
    }

    EventHubConsumerClient consumer() {
        return consumer(EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME);
    }

    void publish(CreateBatchOptions options, EventData... events) {
        EventDataBatch batch = producer().createBatch(options);
        for (EventData event : events) {
            Trial.holds("it fits", batch.tryAdd(event));
        }
        producer().send(batch);
    }

    static CreateBatchOptions into(String partition) {
        return new CreateBatchOptions().setPartitionId(partition);
    }

    static EventData text(String body) {
        return new EventData(body);
    }

    /** So many events with their numbers as bodies, in partition 0. */
    void numbers(int count) {
        publish(into("0"), numbered(count).stream().map(EventData::new).toArray(EventData[]::new));
    }

    static List<String> numbered(int count) {
        List<String> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            found.add(String.valueOf(number));
        }
        return found;
    }

    /** Exactly so many from partition 0, by one call. */
    static List<EventData> read(EventHubConsumerClient from, String partition, int count, EventPosition start) {
        List<EventData> found = new ArrayList<>();
        for (PartitionEvent event : from.receiveFromPartition(partition, count, start, Duration.ofSeconds(10))) {
            found.add(event.getData());
        }
        Trial.equal("events that came", found.size(), count);
        return found;
    }

    List<EventData> read(int count, EventPosition start) {
        return read(consumer(), "0", count, start);
    }

    static List<String> bodies(List<EventData> events) {
        List<String> found = new ArrayList<>();
        events.forEach(event -> found.add(event.getBodyAsString()));
        return found;
    }

    void reads(EventPosition start, String... wanted) {
        Trial.equal("bodies", bodies(read(wanted.length, start)), List.of(wanted));
    }

    @Override
    public void close() throws Exception {
        for (AutoCloseable each : opened) {
            each.close();
        }
    }
}
