import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Messages of every kind, selectors, browsers, temporary queues. */
final class JmsMessages {
    private static Message exchange(JmsBench bench, Session session, Message sent) throws Exception {
        session.createProducer(session.createQueue(bench.entity)).send(sent);
        Message found = JmsBench.consumer(session, bench.entity).receive(8000);
        Trial.holds("a message came", found != null);
        return found;
    }

    private static List<String> browse(Session session, String queue, String selector) throws Exception {
        List<String> found = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(session.createQueue(queue), selector)) {
            for (java.util.Enumeration<?> all = browser.getEnumeration(); all.hasMoreElements();) {
                found.add(JmsBench.text((Message) all.nextElement()));
            }
        }
        return found;
    }

    static void add(Trial<JmsBench> trial) {
        trial.operation("text_message", bench -> {
            Session session = bench.session();
            Trial.equal("text", JmsBench.text(exchange(bench, session, session.createTextMessage("hello"))), "hello");
        });
        trial.operation("bytes_message", bench -> {
            Session session = bench.session();
            BytesMessage sent = session.createBytesMessage();
            sent.writeBytes(new byte[] {1, 2, 3});
            Trial.equal("bytes", exchange(bench, session, sent).getBody(byte[].class), new byte[] {1, 2, 3});
        });
        trial.operation("map_message", bench -> {
            Session session = bench.session();
            MapMessage sent = session.createMapMessage();
            sent.setString("a", "text");
            sent.setLong("b", 7);
            MapMessage found = (MapMessage) exchange(bench, session, sent);
            Trial.equal("map", List.of(found.getString("a"), found.getLong("b")), List.of("text", 7L));
        });
        trial.operation("stream_message", bench -> {
            Session session = bench.session();
            StreamMessage sent = session.createStreamMessage();
            sent.writeString("a");
            sent.writeInt(7);
            StreamMessage found = (StreamMessage) exchange(bench, session, sent);
            Trial.equal("stream", List.of(found.readString(), found.readInt()), List.of("a", 7));
        });
        trial.operation("object_message", bench -> {
            Session session = bench.session();
            ObjectMessage sent = session.createObjectMessage("an object");
            Trial.equal("object", ((ObjectMessage) exchange(bench, session, sent)).getObject(), "an object");
        });
        trial.operation("empty_message", bench -> {
            Session session = bench.session();
            Message sent = session.createMessage();
            sent.setStringProperty("only", "properties");
            Trial.equal("property", exchange(bench, session, sent).getStringProperty("only"), "properties");
        });
        trial.operation("every_property_comes_back", bench -> {
            Session session = bench.session();
            TextMessage sent = session.createTextMessage("x");
            sent.setStringProperty("text", "t");
            sent.setIntProperty("count", 7);
            sent.setLongProperty("long", 8L);
            sent.setDoubleProperty("half", 0.5);
            sent.setBooleanProperty("yes", true);
            sent.setByteProperty("small", (byte) 1);
            Message found = exchange(bench, session, sent);
            for (String name : List.of("text", "count", "long", "half", "yes", "small")) {
                Trial.equal(name, found.getObjectProperty(name), sent.getObjectProperty(name));
            }
        });
        trial.operation("every_header_comes_back", bench -> {
            Session session = bench.session();
            TextMessage sent = session.createTextMessage("x");
            sent.setJMSCorrelationID("correlation");
            sent.setJMSType("a type");
            sent.setJMSReplyTo(session.createQueue("somewhere"));
            Message found = exchange(bench, session, sent);
            Trial.equal("headers", List.of(found.getJMSCorrelationID(), found.getJMSType(), found.getJMSReplyTo().toString()),
                List.of("correlation", "a type", "somewhere"));
            Trial.equal("id", found.getJMSMessageID(), sent.getJMSMessageID());
            Trial.holds("a time", found.getJMSTimestamp() > 0);
            Trial.holds("first delivery", !found.getJMSRedelivered() && found.getIntProperty("JMSXDeliveryCount") == 1);
        });
        trial.operation("priority_and_mode", bench -> {
            Session session = bench.session();
            MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
            producer.send(session.createTextMessage("x"), DeliveryMode.NON_PERSISTENT, 9, 0);
            Message found = JmsBench.consumer(session, bench.entity).receive(8000);
            Trial.equal("priority", found.getJMSPriority(), 9);
        });
        trial.operation("message_expires", bench -> {
            Session session = bench.session();
            MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
            producer.send(session.createTextMessage("old"), DeliveryMode.PERSISTENT, 4, 300);
            Thread.sleep(1000);
            JmsBench.nothing(JmsBench.consumer(session, bench.entity));
        });
        trial.operation("large_message", bench -> {
            Session session = bench.session();
            String body = "x".repeat(200_000);
            Trial.equal("length", JmsBench.text(exchange(bench, session, session.createTextMessage(body))).length(), 200_000);
        });
        trial.operation("many_messages", bench -> {
            Session session = bench.session();
            MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
            for (int number = 0; number < 200; number++) {
                producer.send(session.createTextMessage(String.valueOf(number)));
            }
            MessageConsumer consumer = JmsBench.consumer(session, bench.entity);
            for (int number = 0; number < 200; number++) {
                Trial.equal("body", JmsBench.next(consumer), String.valueOf(number));
            }
            JmsBench.nothing(consumer);
        });
        trial.operation("asynchronous_send", bench -> {
            Session session = bench.session();
            CompletableFuture<String> done = new CompletableFuture<>();
            session.createProducer(session.createQueue(bench.entity)).send(session.createTextMessage("x"), new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    done.complete("sent");
                }

                @Override
                public void onException(Message message, Exception problem) {
                    done.completeExceptionally(problem);
                }
            });
            Trial.equal("outcome", done.get(8, TimeUnit.SECONDS), "sent");
        });
        trial.operation("delayed_delivery", bench -> {
            Session session = bench.session();
            MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
            producer.setDeliveryDelay(2000);
            long at = System.currentTimeMillis() + 2000;
            producer.send(session.createTextMessage("soon"));
            Trial.equal("text", JmsBench.next(JmsBench.consumer(session, bench.entity)), "soon");
            Trial.holds("not early", System.currentTimeMillis() >= at - 100);
        });
        trial.operation("message_listener", bench -> {
            bench.send("0", "1", "2");
            Session session = bench.session();
            List<String> found = java.util.Collections.synchronizedList(new ArrayList<>());
            JmsBench.consumer(session, bench.entity).setMessageListener(message -> {
                try {
                    found.add(JmsBench.text(message));
                } catch (Exception problem) {
                    found.add(problem.toString());
                }
            });
            Trial.until("three messages", () -> found.size() == 3);
            Trial.equal("bodies", found, List.of("0", "1", "2"));
        });
        trial.operation("receive_does_not_wait", bench -> {
            MessageConsumer consumer = JmsBench.consumer(bench.session(), bench.entity);
            Trial.equal("nothing", consumer.receiveNoWait(), null);
            bench.send("x");
            Trial.until("the message", () -> {
                try {
                    return consumer.receiveNoWait() != null;
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            });
        });
        trial.operation("two_consumers_share", bench -> {
            Session one = bench.session();
            Session two = bench.session();
            MessageConsumer first = JmsBench.consumer(one, bench.entity);
            MessageConsumer second = JmsBench.consumer(two, bench.entity);
            bench.send("a", "b");
            int found = 0;
            for (int turn = 0; turn < 4 && found < 2; turn++) {
                found += first.receive(500) == null ? 0 : 1;
                found += second.receive(500) == null ? 0 : 1;
            }
            Trial.equal("messages", found, 2);
        });
        trial.operation("browse", bench -> {
            bench.send("a", "b", "c");
            Session session = bench.session();
            Trial.equal("browsed", browse(session, bench.entity, null), List.of("a", "b", "c"));
            Trial.equal("nobody's lock", bench.left(), List.of("a", "b", "c"));
        });
        trial.operation("selector_on_a_queue_is_refused", bench -> {
            bench.send("red", "blue");
            Session session = bench.session();
            Throwable problem = Trial.fails("cannot have a selector", () ->
                session.createConsumer(session.createQueue(bench.entity), "color = 'blue'"));
            Trial.holds("of JMS: " + problem, problem instanceof JMSException);
            Trial.holds("what to do instead: " + problem, problem.getMessage().contains("a subscription with an SQL rule"));
            Trial.equal("nothing was taken", bench.left(), List.of("red", "blue"));
        });
        trial.operation("session_outlives_a_refused_selector", bench -> {
            Session session = bench.session();
            Trial.fails("cannot have a selector", () -> session.createConsumer(session.createQueue(bench.entity), "color = 'blue'"));
            Trial.equal("text", JmsBench.text(exchange(bench, session, session.createTextMessage("x"))), "x");
        });
        trial.operation("selector_of_a_browser", bench -> {
            Session session = bench.session();
            MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
            for (String color : List.of("red", "blue", "red")) {
                TextMessage message = session.createTextMessage(color);
                message.setStringProperty("color", color);
                producer.send(message);
            }
            Trial.equal("browsed", browse(session, bench.entity, "color = 'blue'"), List.of("blue"));
            Trial.equal("nobody's lock", bench.left(), List.of("red", "blue", "red"));
        });
        trial.operation("wrong_selector_is_told", bench -> Trial.fails("InvalidSelectorException", () -> {
            Session session = bench.session();
            session.createConsumer(session.createQueue(bench.entity), "color = = 1");
        }));
        trial.operation("temporary_queue", bench -> {
            Session session = bench.session();
            TemporaryQueue queue = session.createTemporaryQueue();
            session.createProducer(queue).send(session.createTextMessage("x"));
            MessageConsumer consumer = session.createConsumer(queue);
            Trial.equal("text", JmsBench.next(consumer), "x");
            consumer.close();
            queue.delete();
        });
        trial.operation("request_and_reply", bench -> {
            Session session = bench.session();
            TemporaryQueue answers = session.createTemporaryQueue();
            TextMessage request = session.createTextMessage("question");
            request.setJMSReplyTo(answers);
            Message asked = exchange(bench, session, request);
            session.createProducer(asked.getJMSReplyTo()).send(session.createTextMessage("answer"));
            Trial.equal("text", JmsBench.next(session.createConsumer(answers)), "answer");
        });
        trial.operation("group_becomes_a_session", bench -> {
            Session session = bench.session();
            TextMessage message = session.createTextMessage("x");
            message.setStringProperty("JMSXGroupID", "a group");
            Trial.equal("group", exchange(bench, session, message).getStringProperty("JMSXGroupID"), "a group");
        });
        trial.operation("context", bench -> {
            try (JMSContext context = bench.factory().createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
                context.createProducer().setProperty("color", "red").send(context.createQueue(bench.entity), "x");
                Trial.equal("text", context.createConsumer(context.createQueue(bench.entity)).receiveBody(String.class, 8000), "x");
            }
        });
        trial.operation("metadata", bench -> {
            Connection connection = bench.connection(null);
            Trial.equal("version", connection.getMetaData().getJMSMajorVersion(), 3);
            Trial.holds("a client id", connection.getClientID() != null);
        });
        trial.operation("missing_queue_is_told", bench -> {
            Session session = bench.session();
            Trial.fails("could not be found", () -> JmsBench.send(session, bench.entity + "-missing", "x"));
            Trial.fails("could not be found", () -> JmsBench.consumer(session, bench.entity + "-missing"));
        });
    }
}
