/** The unmodified azure-messaging-eventhubs: `java … EventHubsProgram [OPERATION…]`. */
final class EventHubsProgram {
    public static void main(String[] names) throws Exception {
        Trial<EventHubsBench> trial = new Trial<>();
        EventHubsPublishing.add(trial);
        EventHubsReading.add(trial);
        EventHubsProcessors.add(trial);
        trial.main(names, EventHubsBench::new);
    }
}
