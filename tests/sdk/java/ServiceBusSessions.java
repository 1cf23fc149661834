import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** Sessions. */
final class ServiceBusSessions {
    private static ServiceBusMessage in(String id, String body) {
        return ServiceBusBench.text(body).setSessionId(id);
    }

    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("session_in_order", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"), in("b", "x"), in("a", "1"), in("a", "2"));
            ServiceBusReceiverClient session = bench.accept(bench.entity, "a");
            Trial.equal("id", session.getSessionId(), "a");
            List<ServiceBusReceivedMessage> found = ServiceBusBench.take(session, 3);
            Trial.equal("bodies", ServiceBusBench.bodies(found), ServiceBusBench.numbered(3));
            found.forEach(session::complete);
            ServiceBusBench.nothing(session);
        });
        trial.operation("next_session", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"), in("b", "1"));
            Set<String> found = new TreeSet<>();
            ServiceBusSessionReceiverClient sessions = bench.sessions(bench.entity);
            for (int times = 0; times < 2; times++) {
                found.add(bench.keep(sessions.acceptNextSession()).getSessionId());
            }
            Trial.equal("sessions", found, Set.of("a", "b"));
        });
        trial.operation("session_state", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"));
            ServiceBusSessionReceiverClient client = bench.sessions(bench.entity);
            ServiceBusReceiverClient session = client.acceptSession("a");
            session.setSessionState("half way".getBytes());
            session.close();
            client.close(); // the older version detaches a session that has received nothing only now
            Thread.sleep(1000); // and does not wait for it
            Trial.equal("state", new String(bench.accept(bench.entity, "a").getSessionState()), "half way");
        });
        trial.operation("no_session_state", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"));
            Trial.equal("state", bench.accept(bench.entity, "a").getSessionState(), null);
        });
        trial.operation("empty_session_state_is_none", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"));
            ServiceBusReceiverClient session = bench.accept(bench.entity, "a");
            session.setSessionState(new byte[0]);
            Trial.equal("state", session.getSessionState(), null);
        });
        trial.operation("renew_session_lock", bench -> {
            bench.queue(new CreateQueueOptions().setSessionRequired(true).setLockDuration(Duration.ofSeconds(5)));
            bench.send(bench.entity, in("a", "slow"));
            ServiceBusReceiverClient session = bench.accept(bench.entity, "a");
            ServiceBusReceivedMessage message = ServiceBusBench.one(session);
            for (int times = 0; times < 3; times++) {
                Thread.sleep(2500);
                Trial.holds("a later end", session.renewSessionLock().isAfter(OffsetDateTime.now().plusSeconds(3)));
            }
            session.complete(message);
        });
        trial.operation("locked_session_is_told", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"));
            bench.accept(bench.entity, "a");
            Trial.fails("", () -> bench.accept(bench.entity, "a"));
        });
        trial.operation("session_settlements", bench -> {
            bench.send(bench.sessionQueue(), in("a", "abandon"), in("a", "defer"), in("a", "dead"));
            ServiceBusReceiverClient session = bench.accept(bench.entity, "a");
            session.abandon(ServiceBusBench.one(session));
            // The older version asks ahead, so the abandoned one may come behind the others.
            Map<String, ServiceBusReceivedMessage> found = new TreeMap<>();
            ServiceBusBench.take(session, 3).forEach(message -> found.put(message.getBody().toString(), message));
            session.complete(found.get("abandon"));
            session.defer(found.get("defer"));
            session.deadLetter(found.get("dead"));
            ServiceBusReceivedMessage fetched = session.receiveDeferredMessage(found.get("defer").getSequenceNumber());
            Trial.equal("body", fetched.getBody().toString(), "defer");
            session.complete(fetched);
            ServiceBusReceivedMessage dead = ServiceBusBench.one(bench.deadLetters(bench.entity));
            Trial.equal("dead", List.of(dead.getBody().toString(), dead.getSessionId()), List.of("dead", "a"));
        });
        trial.operation("peek_in_a_session", bench -> {
            bench.send(bench.sessionQueue(), in("a", "0"), in("b", "x"), in("a", "1"));
            Trial.equal("bodies", ServiceBusBench.bodies(bench.accept(bench.entity, "a").peekMessages(9)), ServiceBusBench.numbered(2));
        });
        trial.operation("session_of_a_subscription", bench -> {
            bench.admin.createTopic(bench.entity);
            bench.admin.createSubscription(bench.entity, "s", new CreateSubscriptionOptions().setSessionRequired(true));
            bench.publish(bench.entity, in("a", "0"));
            ServiceBusSessionReceiverClient sessions = bench.keep(ServiceBusBench.clients().sessionReceiver()
                .topicName(bench.entity).subscriptionName("s").disableAutoComplete().buildClient());
            Trial.equal("body", ServiceBusBench.one(bench.keep(sessions.acceptNextSession())).getBody().toString(), "0");
        });
    }
}
