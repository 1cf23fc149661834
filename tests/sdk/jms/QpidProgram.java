import org.apache.qpid.jms.JmsConnectionFactory;

/** The plain client of Qpid, with the key as user and password: `java … QpidProgram [OPERATION…]`. */
final class QpidProgram {
    private static JmsConnectionFactory factory(String key) {
        String host = Trial.ADDRESS.isEmpty() ? Trial.value("Endpoint").replace("sb://", "") : Trial.ADDRESS;
        String uri = switch (Trial.MODE) {
            case "loopback" -> "amqp://" + host;
            case "tls" -> "amqps://" + host;
            default -> "amqpwss://" + host + "/$servicebus/websocket";
        };
        return new JmsConnectionFactory(Trial.value("SharedAccessKeyName"), key, uri + "?jms.requestTimeout=10000&jms.connectTimeout=8000");
    }

    public static void main(String[] names) throws Exception {
        Trial<JmsBench> trial = new Trial<>();
        JmsMessages.add(trial);
        JmsAcknowledging.add(trial);
        JmsTopics.add(trial);
        trial.operation("wrong_key_is_told", bench -> Trial.fails("authenticate", () -> factory("wrong").createConnection().start()));
        trial.main(names, entity -> new JmsBench(entity, () -> factory(Trial.value("SharedAccessKey"))));
    }
}
