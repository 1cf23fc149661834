import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Processors, which receive and settle by themselves. */
final class ServiceBusProcessors {
    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("processor", bench -> {
            bench.queue();
            Queue<String> found = new ConcurrentLinkedQueue<>();
            Queue<Throwable> problems = new ConcurrentLinkedQueue<>();
            ServiceBusProcessorClient processor = bench.keep(ServiceBusBench.clients().processor().queueName(bench.entity)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> problems.add(context.getException())).maxConcurrentCalls(2).buildProcessorClient());
            processor.start();
            bench.send(bench.entity, ServiceBusBench.text("0"), ServiceBusBench.text("1"), ServiceBusBench.text("2"));
            Trial.until("three messages", () -> found.size() == 3);
            Trial.until("nothing left", () -> bench.admin.getQueueRuntimeProperties(bench.entity).getTotalMessageCount() == 0);
            processor.close();
            Trial.equal("problems", List.copyOf(problems), List.of());
        });
        trial.operation("processor_abandons_what_fails", bench -> {
            bench.queue(new CreateQueueOptions().setMaxDeliveryCount(2));
            ServiceBusProcessorClient processor = bench.keep(ServiceBusBench.clients().processor().queueName(bench.entity)
                .processMessage(context -> {
                    throw new IllegalStateException("cannot");
                }).processError(context -> { }).buildProcessorClient());
            processor.start();
            bench.send(bench.entity, ServiceBusBench.text("bad"));
            Trial.until("a dead letter", () -> bench.admin.getQueueRuntimeProperties(bench.entity).getDeadLetterMessageCount() == 1);
        });
        trial.operation("processor_stops_and_starts", bench -> {
            bench.queue();
            Queue<String> found = new ConcurrentLinkedQueue<>();
            ServiceBusProcessorClient processor = bench.keep(ServiceBusBench.clients().processor().queueName(bench.entity)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> { }).buildProcessorClient());
            for (int times = 1; times <= 2; times++) {
                // One that is processed when it stops, and not completed yet, comes again.
                String body = "x" + times;
                processor.start();
                bench.send(bench.entity, ServiceBusBench.text(body));
                Trial.until("a message", () -> found.contains(body));
                processor.stop();
            }
        });
        trial.operation("session_processor", bench -> {
            bench.sessionQueue();
            Map<String, Queue<String>> found = new ConcurrentHashMap<>();
            ServiceBusProcessorClient processor = bench.keep(ServiceBusBench.clients().sessionProcessor().queueName(bench.entity)
                .processMessage(context -> found.computeIfAbsent(context.getMessage().getSessionId(), id -> new ConcurrentLinkedQueue<>())
                    .add(context.getMessage().getBody().toString()))
                .processError(context -> { }).maxConcurrentSessions(2).buildProcessorClient());
            processor.start();
            for (String body : ServiceBusBench.numbered(3)) {
                bench.send(bench.entity, ServiceBusBench.text(body).setSessionId("a"), ServiceBusBench.text(body).setSessionId("b"));
            }
            Trial.until("six messages", () -> found.values().stream().mapToInt(Queue::size).sum() == 6);
            for (String id : List.of("a", "b")) {
                Trial.equal("session " + id, List.copyOf(found.get(id)), ServiceBusBench.numbered(3));
            }
        });
    }
}
