import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.MalformedURLException;
import java.net.URL;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/** Of one operation: its clients, and short words for what all of them do. */
final class ServiceBusBench implements AutoCloseable {
    final String entity;
    final ServiceBusAdministrationClient admin = administration(Trial.CONNECTION_STRING);
    private final List<AutoCloseable> opened = new ArrayList<>();

    ServiceBusBench(String entity) {
        this.entity = entity;
    }

    static ServiceBusClientBuilder clients(String connectionString) {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(connectionString)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(1).setTryTimeout(Duration.ofSeconds(10)));
        if (Trial.MODE.equals("websocket")) {
            builder.transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        }
        return Trial.ADDRESS.isEmpty() ? builder : builder.customEndpointAddress("https://" + Trial.ADDRESS);
    }

    static ServiceBusClientBuilder clients() {
        return clients(Trial.CONNECTION_STRING);
    }

    static ServiceBusAdministrationClient administration(String connectionString) {
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString)
            .addPolicy(new Redirection()).buildClient();
    }

    /** To where the bus listens in fact. */
    private static final class Redirection implements HttpPipelinePolicy {
        @Override
        public reactor.core.publisher.Mono<com.azure.core.http.HttpResponse> process(
            HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            URL url = context.getHttpRequest().getUrl();
            String address = Trial.ADDRESS.isEmpty() ? Trial.value("Endpoint").replace("sb://", "") : Trial.ADDRESS;
            try {
                context.getHttpRequest().setUrl(new URL("https://" + address + url.getFile()));
            } catch (MalformedURLException wrong) {
                throw new IllegalStateException(wrong);
            }
            return next.process();
        }
    }

    <T extends AutoCloseable> T keep(T client) {
        opened.add(client);
        return client;
    }

    String queue(CreateQueueOptions options) {
        if (Trial.GIVEN == null) {
            admin.createQueue(entity, options);
        }
        return entity;
    }

    String queue() {
        return queue(new CreateQueueOptions());
    }

    String sessionQueue() {
        return queue(new CreateQueueOptions().setSessionRequired(true));
    }

    String topic(String... subscriptions) {
        admin.createTopic(entity);
        for (String name : subscriptions) {
            admin.createSubscription(entity, name);
        }
        return entity;
    }

    ServiceBusSenderClient sender(String queue) {
        return keep(clients().sender().queueName(queue).buildClient());
    }

    void send(String queue, ServiceBusMessage... messages) {
        ServiceBusSenderClient sender = sender(queue);
        for (ServiceBusMessage message : messages) {
            sender.sendMessage(message);
        }
        sender.close();
    }

    void publish(String topic, ServiceBusMessage... messages) {
        ServiceBusSenderClient sender = keep(clients().sender().topicName(topic).buildClient());
        for (ServiceBusMessage message : messages) {
            sender.sendMessage(message);
        }
        sender.close();
    }

    ServiceBusReceiverClient receiver(String queue) {
        return keep(clients().receiver().queueName(queue).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient deleting(String queue) {
        return keep(clients().receiver().queueName(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return keep(clients().receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient subscriber(String topic, String name) {
        return keep(clients().receiver().topicName(topic).subscriptionName(name).disableAutoComplete().buildClient());
    }

    ServiceBusSessionReceiverClient sessions(String queue) {
        return keep(clients().sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient accept(String queue, String id) {
        return keep(sessions(queue).acceptSession(id));
    }

    /** Exactly so many, however many calls it takes. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient from, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        for (int calls = 0; found.size() < count && calls < count + 3; calls++) {
            from.receiveMessages(count - found.size(), Duration.ofSeconds(8)).forEach(found::add);
        }
        Trial.equal("messages that came", found.size(), count);
        return found;
    }

    static ServiceBusReceivedMessage one(ServiceBusReceiverClient from) {
        return take(from, 1).get(0);
    }

    /** For a moment nothing comes. */
    static void nothing(ServiceBusReceiverClient from) {
        List<String> found = from.receiveMessages(1, Duration.ofMillis(700)).stream()
            .map(message -> message.getBody().toString()).collect(Collectors.toList());
        Trial.equal("messages that came", found, List.of());
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(message -> found.add(message.getBody().toString()));
        return found;
    }

    static ServiceBusMessage text(String body) {
        return new ServiceBusMessage(body);
    }

    static List<String> numbered(int count) {
        List<String> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            found.add(String.valueOf(number));
        }
        return found;
    }

    @Override
    public void close() throws Exception {
        for (AutoCloseable each : opened) {
            each.close();
        }
    }
}
