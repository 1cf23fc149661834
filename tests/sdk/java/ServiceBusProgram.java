/** The unmodified azure-messaging-servicebus: `java … ServiceBusProgram [OPERATION…]`. */
final class ServiceBusProgram {
    public static void main(String[] names) throws Exception {
        Trial<ServiceBusBench> trial = new Trial<>();
        ServiceBusMessages.add(trial);
        ServiceBusSettling.add(trial);
        ServiceBusSessions.add(trial);
        ServiceBusTopics.add(trial);
        ServiceBusTransactions.add(trial);
        ServiceBusProcessors.add(trial);
        ServiceBusAdministration.add(trial);
        trial.main(names, ServiceBusBench::new);
    }
}
