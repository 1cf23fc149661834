import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import reactor.core.Disposable;

/** Reading from a partition. */
final class EventHubsReading {
    static void add(Trial<EventHubsBench> trial) {
        trial.operation("from_the_start", bench -> {
            bench.numbers(4);
            bench.reads(EventPosition.earliest(), "0", "1", "2", "3");
        });
        trial.operation("from_a_number", bench -> {
            bench.numbers(4);
            bench.reads(EventPosition.fromSequenceNumber(1), "2", "3");
        });
        trial.operation("from_a_number_inclusive", bench -> {
            bench.numbers(4);
            bench.reads(EventPosition.fromSequenceNumber(1, true), "1", "2", "3");
        });
        trial.operation("from_an_offset", bench -> {
            bench.numbers(4);
            String second = bench.read(2, EventPosition.earliest()).get(1).getOffsetString();
            bench.reads(EventPosition.fromOffsetString(second), "2", "3");
        });
        trial.operation("from_a_time", bench -> {
            bench.numbers(2);
            bench.reads(EventPosition.fromEnqueuedTime(Instant.now().minusSeconds(60)), "0", "1");
        });
        trial.operation("from_the_end", bench -> {
            bench.numbers(2);
            EventHubConsumerAsyncClient consumer = bench.keep(bench.clients().consumerGroup("$Default").buildAsyncConsumerClient());
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Disposable reading = consumer.receiveFromPartition("0", EventPosition.latest())
                .subscribe(event -> found.add(event.getData().getBodyAsString()), problem -> found.add(problem.toString()));
            Trial.until("the first event", () -> {
                bench.publish(EventHubsBench.into("0"), EventHubsBench.text("new"));
                return !found.isEmpty();
            });
            reading.dispose();
            Trial.equal("body", found.peek(), "new");
        });
        trial.operation("read_asynchronously", bench -> {
            bench.numbers(3);
            EventHubConsumerAsyncClient consumer = bench.keep(bench.clients().consumerGroup("$Default").buildAsyncConsumerClient());
            List<String> found = consumer.receiveFromPartition("0", EventPosition.earliest()).take(3)
                .map(event -> event.getData().getBodyAsString()).collectList().block(Duration.ofSeconds(15));
            Trial.equal("bodies", found, EventHubsBench.numbered(3));
        });
        trial.operation("all_partitions", bench -> {
            bench.publish(EventHubsBench.into("0"), EventHubsBench.text("0"));
            bench.publish(EventHubsBench.into("1"), EventHubsBench.text("1"));
            EventHubConsumerAsyncClient consumer = bench.keep(bench.clients().consumerGroup("$Default").buildAsyncConsumerClient());
            List<String> found = consumer.receive(true).take(2)
                .map(event -> event.getPartitionContext().getPartitionId()).collectList().block(Duration.ofSeconds(15));
            Trial.equal("partitions", new TreeSet<>(found), Set.of("0", "1"));
        });
        trial.operation("one_call_after_the_other", bench -> {
            bench.numbers(6);
            EventHubConsumerClient consumer = bench.consumer();
            Trial.equal("first", EventHubsBench.bodies(EventHubsBench.read(consumer, "0", 3, EventPosition.earliest())), EventHubsBench.numbered(3));
            Trial.equal("next", EventHubsBench.bodies(EventHubsBench.read(consumer, "0", 3, EventPosition.fromSequenceNumber(2))),
                List.of("3", "4", "5"));
        });
        trial.operation("last_enqueued_is_tracked", bench -> {
            bench.numbers(3);
            ReceiveOptions options = new ReceiveOptions().setTrackLastEnqueuedEventProperties(true);
            List<PartitionEvent> found = new ArrayList<>();
            bench.consumer().receiveFromPartition("0", 1, EventPosition.earliest(), Duration.ofSeconds(10), options).forEach(found::add);
            Trial.equal("last", found.get(0).getLastEnqueuedEventProperties().getSequenceNumber(), 2L);
        });
        trial.operation("another_consumer_group", bench -> {
            bench.numbers(2);
            Trial.equal("bodies", EventHubsBench.bodies(EventHubsBench.read(bench.consumer("second"), "0", 2, EventPosition.earliest())),
                EventHubsBench.numbered(2));
        });
        trial.operation("missing_consumer_group_is_told", bench -> {
            bench.numbers(1);
            Trial.fails("", () -> EventHubsBench.read(bench.consumer("missing"), "0", 1, EventPosition.earliest()));
        });
        trial.operation("higher_owner_takes_over", bench -> {
            bench.numbers(1);
            EventHubConsumerAsyncClient consumer = bench.keep(bench.clients().consumerGroup("$Default").buildAsyncConsumerClient());
            EventHubConsumerAsyncClient other = bench.keep(bench.clients().consumerGroup("$Default").buildAsyncConsumerClient());
            Queue<String> low = new ConcurrentLinkedQueue<>();
            Queue<String> high = new ConcurrentLinkedQueue<>();
            consumer.receiveFromPartition("0", EventPosition.earliest(), new ReceiveOptions().setOwnerLevel(1L))
                .subscribe(event -> low.add("event"), problem -> low.add(problem.toString()));
            Trial.until("the first reads", () -> !low.isEmpty());
            other.receiveFromPartition("0", EventPosition.earliest(), new ReceiveOptions().setOwnerLevel(2L))
                .subscribe(event -> high.add("event"), problem -> high.add(problem.toString()));
            Trial.until("the second reads", () -> !high.isEmpty());
            Trial.until("the first is told", () -> low.stream().anyMatch(said -> said.contains("higher epoch")));
        });
        trial.operation("questions_of_a_consumer", bench -> {
            bench.numbers(2);
            EventHubConsumerClient consumer = bench.consumer();
            Trial.equal("ids", consumer.getPartitionIds().stream().toList(), List.of("0", "1"));
            Trial.equal("name", consumer.getEventHubProperties().getName(), bench.hub);
            Trial.equal("last", consumer.getPartitionProperties("0").getLastEnqueuedSequenceNumber(), 1L);
        });
        trial.operation("system_properties", bench -> {
            bench.numbers(1);
            EventData found = bench.read(1, EventPosition.earliest()).get(0);
            Trial.holds("number, offset and time", found.getSystemProperties().keySet()
                .containsAll(Set.of("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time")));
        });
    }
}
