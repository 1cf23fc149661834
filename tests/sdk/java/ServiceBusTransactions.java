import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;

/** Transactions, of one entity and across entities. */
final class ServiceBusTransactions {
    static void add(Trial<ServiceBusBench> trial) {
        trial.operation("sends_are_committed", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(ServiceBusBench.text("0"), transaction);
            sender.sendMessages(List.of(ServiceBusBench.text("1"), ServiceBusBench.text("2")), transaction);
            Trial.equal("before", bench.receiver(bench.entity).peekMessage(), null);
            sender.commitTransaction(transaction);
            Trial.equal("bodies", ServiceBusBench.bodies(ServiceBusBench.take(bench.receiver(bench.entity), 3)), ServiceBusBench.numbered(3));
        });
        trial.operation("sends_are_rolled_back", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(ServiceBusBench.text("never"), transaction);
            sender.rollbackTransaction(transaction);
            Trial.equal("left", bench.receiver(bench.entity).peekMessage(), null);
        });
        trial.operation("completion_is_committed", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("x"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(ServiceBusBench.one(receiver), new CompleteOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            Trial.equal("left", receiver.peekMessage(), null);
        });
        trial.operation("completion_is_rolled_back", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("x"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            Trial.equal("still there", receiver.peekMessage().getBody().toString(), "x");
        });
        trial.operation("every_settlement_is_committed", bench -> {
            bench.sender(bench.queue()).sendMessages(
                List.of(ServiceBusBench.text("0"), ServiceBusBench.text("1"), ServiceBusBench.text("2"), ServiceBusBench.text("3")));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            List<ServiceBusReceivedMessage> found = ServiceBusBench.take(receiver, 4);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(found.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(found.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(found.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(found.get(3), new DeadLetterOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            Trial.equal("abandoned", ServiceBusBench.one(receiver).getBody().toString(), "1");
            Trial.equal("deferred", receiver.receiveDeferredMessage(found.get(2).getSequenceNumber()).getBody().toString(), "2");
            Trial.equal("dead", ServiceBusBench.one(bench.deadLetters(bench.entity)).getBody().toString(), "3");
        });
        // What `nothing` asked for stays open with the bus, so the message comes with the commit, before it is asked for. Receivers of
        // the older kind release it then, and may forget to ask again: that call ends empty, and `one` makes another.
        trial.operation("abandoned_comes_to_an_open_request", bench -> {
            bench.send(bench.queue(), ServiceBusBench.text("x"));
            ServiceBusReceiverClient receiver = bench.receiver(bench.entity);
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            ServiceBusBench.nothing(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.abandon(message, new AbandonOptions().setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            ServiceBusReceivedMessage again = ServiceBusBench.one(receiver);
            Trial.equal("body", again.getBody().toString(), "x");
            Trial.equal("count", again.getDeliveryCount(), 1L);
        });
        trial.operation("schedule_in_a_transaction", bench -> {
            ServiceBusSenderClient sender = bench.sender(bench.queue());
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.scheduleMessage(ServiceBusBench.text("soon"), OffsetDateTime.now().plusSeconds(1), transaction);
            sender.commitTransaction(transaction);
            Trial.equal("body", ServiceBusBench.one(bench.receiver(bench.entity)).getBody().toString(), "soon");
        });
        trial.operation("across_entities", bench -> {
            bench.admin.createQueue(bench.entity + "-target");
            bench.send(bench.queue(), ServiceBusBench.text("in"));
            ServiceBusClientBuilder together = ServiceBusBench.clients().enableCrossEntityTransactions();
            ServiceBusReceiverClient receiver = bench.keep(together.receiver().queueName(bench.entity).disableAutoComplete().buildClient());
            ServiceBusSenderClient sender = bench.keep(together.sender().queueName(bench.entity + "-target").buildClient());
            ServiceBusReceivedMessage message = ServiceBusBench.one(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(ServiceBusBench.text("out"), transaction);
            receiver.commitTransaction(transaction);
            Trial.equal("moved", ServiceBusBench.one(bench.receiver(bench.entity + "-target")).getBody().toString(), "out");
            Trial.equal("left", bench.receiver(bench.entity).peekMessage(), null);
        });
    }
}
