import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;

/** What Azure puts around it: `java … AzureProgram [OPERATION…]`. It always speaks TLS. */
final class AzureProgram {
    private static ConnectionFactory factory(String key) {
        ServiceBusJmsConnectionFactorySettings settings = new ServiceBusJmsConnectionFactorySettings();
        settings.setShouldReconnect(false);
        String host = Trial.ADDRESS.isEmpty() ? Trial.value("Endpoint").replace("sb://", "") : Trial.ADDRESS;
        // It reads the host as a URI too, whose first part, before the port, must not begin with a digit.
        String named = host.replace("127.0.0.1", "localhost");
        return new ServiceBusJmsConnectionFactory(Trial.value("SharedAccessKeyName"), key, named, settings);
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
