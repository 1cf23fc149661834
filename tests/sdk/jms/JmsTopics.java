import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;

/** Topics and the subscriptions of JMS. */
final class JmsTopics {
    private static void publish(Session session, Topic topic, String... bodies) throws Exception {
        MessageProducer producer = session.createProducer(topic);
        for (String body : bodies) {
            TextMessage message = session.createTextMessage(body);
            message.setStringProperty("body", body);
            producer.send(message);
        }
    }

    private static Topic topic(JmsBench bench, Session session) throws Exception {
        return session.createTopic(bench.entity + "-topic");
    }

    static void add(Trial<JmsBench> trial) {
        trial.operation("subscription_by_its_path", bench -> {
            Session session = bench.session();
            publish(session, topic(bench, session), "news");
            Trial.equal("text", JmsBench.next(JmsBench.consumer(session, bench.entity + "-topic/Subscriptions/s")), "news");
        });
        trial.operation("dead_letters_by_their_path", bench -> JmsBench.nothing(
            JmsBench.consumer(bench.session(), bench.entity + "/$deadletterqueue")));
        trial.operation("nondurable_subscription", bench -> {
            Session session = bench.session();
            MessageConsumer consumer = session.createConsumer(topic(bench, session));
            publish(session, topic(bench, session), "news");
            Trial.equal("text", JmsBench.next(consumer), "news");
        });
        trial.operation("durable_subscription", bench -> {
            Connection connection = bench.connection("client-1");
            Session session = connection.createSession();
            session.createDurableSubscriber(topic(bench, session), "mine").close();
            publish(session, topic(bench, session), "while away");
            Trial.equal("text", JmsBench.next(session.createDurableConsumer(topic(bench, session), "mine")), "while away");
        });
        trial.operation("durable_subscription_with_a_selector", bench -> {
            Session session = bench.connection("client-2").createSession();
            MessageConsumer consumer = session.createDurableConsumer(topic(bench, session), "some", "body = 'b'", false);
            publish(session, topic(bench, session), "a", "b");
            Trial.equal("text", JmsBench.next(consumer), "b");
        });
        trial.operation("durable_subscription_is_removed", bench -> {
            Session session = bench.connection("client-3").createSession();
            session.createDurableConsumer(topic(bench, session), "gone").close();
            session.unsubscribe("gone");
            Trial.fails("", () -> session.unsubscribe("gone"));
        });
        trial.operation("shared_durable_subscription", bench -> {
            Session one = bench.session();
            Session two = bench.session();
            MessageConsumer first = one.createSharedDurableConsumer(topic(bench, one), "shared");
            MessageConsumer second = two.createSharedDurableConsumer(topic(bench, two), "shared");
            publish(one, topic(bench, one), "a", "b");
            int found = 0;
            for (int turn = 0; turn < 4 && found < 2; turn++) {
                found += first.receive(500) == null ? 0 : 1;
                found += second.receive(500) == null ? 0 : 1;
            }
            Trial.equal("messages", found, 2);
        });
        trial.operation("shared_nondurable_subscription", bench -> {
            Session session = bench.session();
            MessageConsumer consumer = session.createSharedConsumer(topic(bench, session), "volatile");
            publish(session, topic(bench, session), "news");
            Trial.equal("text", JmsBench.next(consumer), "news");
        });
        trial.operation("nondurable_subscription_with_a_selector", bench -> {
            Session session = bench.session();
            MessageConsumer consumer = session.createConsumer(topic(bench, session), "body = 'b'");
            publish(session, topic(bench, session), "a", "b");
            Trial.equal("text", JmsBench.next(consumer), "b");
        });
        trial.operation("shared_subscription_with_a_selector", bench -> {
            Session session = bench.session();
            MessageConsumer consumer = session.createSharedConsumer(topic(bench, session), "some", "body = 'b'");
            publish(session, topic(bench, session), "a", "b");
            Trial.equal("text", JmsBench.next(consumer), "b");
        });
        trial.operation("own_messages_cannot_be_left_out", bench -> {
            Session session = bench.session();
            Trial.fails("no-local", () -> session.createConsumer(topic(bench, session), null, true));
        });
        trial.operation("temporary_topic", bench -> {
            Session session = bench.session();
            Topic topic = session.createTemporaryTopic();
            MessageConsumer consumer = session.createConsumer(topic);
            publish(session, topic, "news");
            Trial.equal("text", JmsBench.next(consumer), "news");
        });
        trial.operation("publishing_is_committed", bench -> {
            Session session = bench.session(Session.SESSION_TRANSACTED);
            publish(session, topic(bench, session), "0", "1");
            session.commit();
            Session reading = bench.session();
            MessageConsumer consumer = JmsBench.consumer(reading, bench.entity + "-topic/Subscriptions/s");
            Trial.equal("texts", List.of(JmsBench.next(consumer), JmsBench.next(consumer)), List.of("0", "1"));
        });
    }
}
