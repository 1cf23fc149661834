import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/**
 * Of one operation: its connections, and short words for what all of them do. A queue of the operation's name, whose locks
 * last five seconds, and a topic with `-topic` behind it and the subscription `s` are there before.
 */
final class JmsBench implements AutoCloseable {
    final String entity;
    private final Supplier<ConnectionFactory> factory;
    private final List<Connection> opened = new ArrayList<>();

    JmsBench(String entity, Supplier<ConnectionFactory> factory) {
        this.entity = entity;
        this.factory = factory;
    }

    ConnectionFactory factory() {
        return factory.get();
    }

    Connection connection(String clientId) throws JMSException {
        Connection connection = factory().createConnection();
        opened.add(connection);
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.start();
        return connection;
    }

    Session session(int mode) throws JMSException {
        return connection(null).createSession(mode);
    }

    Session session() throws JMSException {
        return session(Session.AUTO_ACKNOWLEDGE);
    }

    static void send(Session session, String queue, String... bodies) throws JMSException {
        for (String body : bodies) {
            session.createProducer(session.createQueue(queue)).send(session.createTextMessage(body));
        }
    }

    void send(String... bodies) throws JMSException {
        send(session(), entity, bodies);
    }

    static MessageConsumer consumer(Session session, String queue) throws JMSException {
        return session.createConsumer(session.createQueue(queue));
    }

    static String text(Message message) throws JMSException {
        Trial.holds("a message came", message != null);
        return message instanceof TextMessage ? ((TextMessage) message).getText() : message.getBody(String.class);
    }

    static String next(MessageConsumer consumer) throws JMSException {
        return text(consumer.receive(8000));
    }

    static void nothing(MessageConsumer consumer) throws JMSException {
        Message found = consumer.receive(700);
        Trial.holds("nothing came, but: " + found, found == null);
    }

    /** What somebody else can receive now. */
    List<String> left() throws JMSException {
        List<String> found = new ArrayList<>();
        try (Connection connection = connection(null)) { // closed, as a consumer that waits gets what comes later
            MessageConsumer consumer = consumer(connection.createSession(), entity);
            for (Message message = consumer.receive(700); message != null; message = consumer.receive(700)) {
                found.add(text(message));
            }
        }
        return found;
    }

    /** The first that somebody else can receive, when its lock has ended. */
    String leftLater() throws JMSException {
        return next(consumer(session(), entity));
    }

    @Override
    public void close() throws JMSException {
        for (Connection connection : opened) {
            connection.close();
        }
    }
}
