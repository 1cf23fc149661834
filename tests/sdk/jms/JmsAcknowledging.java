import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;

/** Acknowledging, and transacted sessions. */
final class JmsAcknowledging {
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101; // of Qpid

    static void add(Trial<JmsBench> trial) {
        trial.operation("automatically", bench -> {
            bench.send("x");
            JmsBench.next(JmsBench.consumer(bench.session(Session.AUTO_ACKNOWLEDGE), bench.entity));
            Trial.equal("left", bench.left(), List.of());
        });
        trial.operation("lazily", bench -> {
            bench.send("x");
            Session session = bench.session(Session.DUPS_OK_ACKNOWLEDGE);
            JmsBench.next(JmsBench.consumer(session, bench.entity));
            session.close();
            Trial.equal("left", bench.left(), List.of());
        });
        trial.operation("by_the_client", bench -> {
            bench.send("a", "b");
            MessageConsumer consumer = JmsBench.consumer(bench.session(Session.CLIENT_ACKNOWLEDGE), bench.entity);
            JmsBench.next(consumer);
            Message second = consumer.receive(8000);
            second.acknowledge();
            Thread.sleep(5500); // a lock that was left would have ended
            Trial.equal("after", bench.left(), List.of());
        });
        trial.operation("one_by_one", bench -> {
            bench.send("a", "b");
            Session session = bench.session(INDIVIDUAL_ACKNOWLEDGE);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            consumer.receive(8000).acknowledge();
            session.close();
            Trial.equal("after", bench.leftLater(), "a");
        });
        trial.operation("recovered_comes_again", bench -> {
            bench.send("x");
            Session session = bench.session(Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            session.recover();
            Message again = consumer.receive(8000);
            Trial.holds("again, and told so", again != null && again.getJMSRedelivered());
            again.acknowledge();
        });
        trial.operation("unacknowledged_comes_when_its_lock_ends", bench -> {
            bench.send("x");
            Session session = bench.session(Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            session.close();
            Trial.equal("again", bench.leftLater(), "x");
        });
        trial.operation("sends_are_committed", bench -> {
            Session session = bench.session(Session.SESSION_TRANSACTED);
            JmsBench.send(session, bench.entity, "0", "1");
            Trial.equal("before", bench.left(), List.of());
            session.commit();
            Trial.equal("after", bench.left(), List.of("0", "1"));
        });
        trial.operation("sends_are_rolled_back", bench -> {
            Session session = bench.session(Session.SESSION_TRANSACTED);
            JmsBench.send(session, bench.entity, "never");
            session.rollback();
            JmsBench.send(session, bench.entity, "kept");
            session.commit();
            Trial.equal("after", bench.left(), List.of("kept"));
        });
        trial.operation("receives_are_committed", bench -> {
            bench.send("a", "b");
            Session session = bench.session(Session.SESSION_TRANSACTED);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            JmsBench.next(consumer);
            session.commit();
            Trial.equal("after", bench.left(), List.of());
        });
        trial.operation("receives_are_rolled_back", bench -> {
            bench.send("x");
            Session session = bench.session(Session.SESSION_TRANSACTED);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            session.rollback();
            consumer.close();
            Trial.equal("again", bench.leftLater(), "x");
        });
        trial.operation("receive_and_send_together", bench -> {
            bench.send("in");
            Session session = bench.session(Session.SESSION_TRANSACTED);
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            JmsBench.next(consumer);
            JmsBench.send(session, bench.entity, "out");
            JmsBench.nothing(consumer);
            session.commit();
            Trial.equal("after", JmsBench.next(consumer), "out"); // its own, as it has asked for many beforehand
            session.commit();
            session.close();
            Thread.sleep(5500); // a lock that was left would have ended
            Trial.equal("left", bench.left(), List.of());
        });
        trial.operation("one_transaction_after_the_other", bench -> {
            Session session = bench.session(Session.SESSION_TRANSACTED);
            for (String body : List.of("0", "1", "2")) {
                JmsBench.send(session, bench.entity, body);
                session.commit();
            }
            Trial.equal("after", bench.left(), List.of("0", "1", "2"));
        });
    }
}
