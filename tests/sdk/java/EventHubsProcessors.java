import com.azure.messaging.eventhubs.CheckpointStore;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.models.Checkpoint;
import com.azure.messaging.eventhubs.models.EventContext;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionOwnership;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** EventProcessorClient, with a checkpoint store in memory. */
final class EventHubsProcessors {
    /** Of one hub and one consumer group. Asked when somebody subscribes: a processor subscribes to one answer again and again. */
    static final class Memory implements CheckpointStore {
        final Map<String, Checkpoint> checkpoints = new ConcurrentHashMap<>();
        final Map<String, PartitionOwnership> ownerships = new ConcurrentHashMap<>();

        @Override
        public Flux<PartitionOwnership> listOwnership(String namespace, String hub, String group) {
            return Flux.defer(() -> Flux.fromIterable(List.copyOf(ownerships.values())));
        }

        @Override
        public Flux<PartitionOwnership> claimOwnership(List<PartitionOwnership> wanted) {
            return Flux.defer(() -> Flux.fromIterable(claimed(wanted)));
        }

        private synchronized List<PartitionOwnership> claimed(List<PartitionOwnership> wanted) {
            List<PartitionOwnership> claimed = wanted.stream().filter(each -> {
                PartitionOwnership present = ownerships.get(each.getPartitionId());
                return present == null || present.getETag().equals(each.getETag());
            }).collect(Collectors.toList());
            for (PartitionOwnership each : claimed) {
                each.setETag(UUID.randomUUID().toString()).setLastModifiedTime(System.currentTimeMillis());
                ownerships.put(each.getPartitionId(), each);
            }
            return claimed;
        }

        @Override
        public Flux<Checkpoint> listCheckpoints(String namespace, String hub, String group) {
            return Flux.defer(() -> Flux.fromIterable(List.copyOf(checkpoints.values())));
        }

        @Override
        public Mono<Void> updateCheckpoint(Checkpoint checkpoint) {
            return Mono.fromRunnable(() -> checkpoints.put(checkpoint.getPartitionId(), checkpoint));
        }

        Set<String> owners() {
            return ownerships.values().stream().map(PartitionOwnership::getOwnerId).collect(Collectors.toSet());
        }
    }

    private static EventProcessorClientBuilder builder(EventHubsBench bench, Memory memory) {
        EventProcessorClientBuilder builder = new EventProcessorClientBuilder().connectionString(Trial.CONNECTION_STRING, bench.hub)
            .consumerGroup("$Default").checkpointStore(memory).retryOptions(EventHubsBench.quick())
            .loadBalancingStrategy(LoadBalancingStrategy.GREEDY).loadBalancingUpdateInterval(Duration.ofMillis(500))
            .initialPartitionEventPosition(partition -> EventPosition.earliest()).processError(context -> { });
        if (Trial.MODE.equals("websocket")) {
            builder.transportType(com.azure.core.amqp.AmqpTransportType.AMQP_WEB_SOCKETS);
        }
        return Trial.ADDRESS.isEmpty() ? builder : builder.customEndpointAddress("https://" + Trial.ADDRESS);
    }

    private static EventProcessorClient started(EventHubsBench bench, Memory memory, Consumer<EventContext> process) {
        EventProcessorClient processor = builder(bench, memory).processEvent(process).buildEventProcessorClient();
        bench.keep(processor::stop);
        processor.start();
        return processor;
    }

    static void add(Trial<EventHubsBench> trial) {
        trial.operation("processor", bench -> {
            bench.publish(EventHubsBench.into("0"), EventHubsBench.text("0"));
            bench.publish(EventHubsBench.into("1"), EventHubsBench.text("1"));
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Memory memory = new Memory();
            started(bench, memory, context -> {
                found.add(context.getEventData().getBodyAsString());
                context.updateCheckpoint();
            });
            Trial.until("both events", () -> Set.copyOf(found).equals(Set.of("0", "1")));
            Trial.until("both checkpoints", () -> memory.checkpoints.size() == 2);
        });
        trial.operation("processor_goes_on_from_its_checkpoint", bench -> {
            Memory memory = new Memory();
            for (String body : List.of("first", "second")) {
                bench.publish(EventHubsBench.into("0"), EventHubsBench.text(body));
                Queue<String> found = new ConcurrentLinkedQueue<>();
                EventProcessorClient processor = started(bench, memory, context -> {
                    context.updateCheckpoint();
                    found.add(context.getEventData().getBodyAsString());
                });
                Trial.until("the event", () -> !found.isEmpty());
                processor.stop();
                memory.ownerships.clear();
                Trial.equal("found", List.copyOf(found), List.of(body));
            }
        });
        trial.operation("processor_of_batches", bench -> {
            bench.numbers(10);
            Queue<String> found = new ConcurrentLinkedQueue<>();
            EventProcessorClient processor = builder(bench, new Memory()).processEventBatch(context -> context.getEvents()
                .forEach(event -> found.add(event.getBodyAsString())), 5, Duration.ofSeconds(1)).buildEventProcessorClient();
            bench.keep(processor::stop);
            processor.start();
            Trial.until("ten events", () -> found.size() == 10);
            Trial.equal("bodies", List.copyOf(found), EventHubsBench.numbered(10));
        });
        trial.operation("two_processors_share", bench -> {
            Memory memory = new Memory();
            started(bench, memory, context -> { });
            Trial.until("one has all", () -> memory.ownerships.size() == 2);
            started(bench, memory, context -> { });
            Trial.until("each has one", () -> memory.owners().size() == 2);
        });
    }
}
