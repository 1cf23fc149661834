package main

import (
	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (bench *bench) subscriber(topic, name string) *azservicebus.Receiver {
	return program.Get(bench.client.NewReceiverForSubscription(topic, name, nil))
}

// A subscription with one rule, instead of the one that takes everything.
func (bench *bench) subscribe(topic, name string, filter admin.RuleFilter, action admin.RuleAction) {
	rule := &admin.RuleProperties{Name: "only", Filter: filter, Action: action}
	options := &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{DefaultRule: rule}}
	program.Get(bench.admin.CreateSubscription(bench, topic, name, options))
}

func colored(body, color string, size int64) *azservicebus.Message {
	properties := map[string]any{"color": color, "size": size}
	return &azservicebus.Message{Body: []byte(body), Subject: to.Ptr(color), ApplicationProperties: properties}
}

func init() {
	operation("every_subscription_gets_a_copy", func(bench *bench) {
		topic := bench.topic("one", "two")
		bench.send(topic, text("news"))
		for _, name := range []string{"one", "two"} {
			receiver := bench.subscriber(topic, name)
			message := bench.one(receiver)
			program.Equal("body", string(message.Body), "news")
			program.Check(receiver.CompleteMessage(bench, message, nil))
		}
	})
	operation("sql_filter", func(bench *bench) {
		topic := bench.topic()
		bench.subscribe(topic, "s", &admin.SQLFilter{Expression: "color = 'red' AND size > @least", Parameters: map[string]any{"@least": int64(5)}}, nil)
		bench.send(topic, colored("0", "red", 9), colored("x", "red", 1), colored("x", "blue", 9), colored("1", "red", 6))
		receiver := bench.subscriber(topic, "s")
		program.Equal("bodies", bodies(bench.take(receiver, 2)), numbered(2))
		bench.nothing(receiver)
	})
	operation("correlation_filter", func(bench *bench) {
		topic := bench.topic()
		filter := &admin.CorrelationFilter{Subject: to.Ptr("red"), ApplicationProperties: map[string]any{"size": int64(9)}}
		bench.subscribe(topic, "s", filter, nil)
		bench.send(topic, colored("x", "red", 1), colored("0", "red", 9), colored("x", "blue", 9))
		receiver := bench.subscriber(topic, "s")
		program.Equal("body", string(bench.one(receiver).Body), "0")
		bench.nothing(receiver)
	})
	operation("action_changes_the_copy", func(bench *bench) {
		topic := bench.topic("plain")
		bench.subscribe(topic, "s", &admin.TrueFilter{}, &admin.SQLAction{Expression: "SET color = 'green'; SET sys.Label = 'new'"})
		bench.send(topic, colored("0", "red", 9))
		message := bench.one(bench.subscriber(topic, "s"))
		program.Equal("changed", []any{message.ApplicationProperties["color"], *message.Subject}, []any{"green", "new"})
		program.Equal("plain", bench.one(bench.subscriber(topic, "plain")).ApplicationProperties["color"], "red")
	})
	operation("false_filter", func(bench *bench) {
		topic := bench.topic()
		bench.subscribe(topic, "s", &admin.FalseFilter{}, nil)
		bench.send(topic, text("x"))
		bench.nothing(bench.subscriber(topic, "s"))
	})
	operation("subscription_dead_letters", func(bench *bench) {
		topic := bench.topic("s")
		bench.send(topic, text("bad"))
		receiver := bench.subscriber(topic, "s")
		program.Check(receiver.DeadLetterMessage(bench, bench.one(receiver), &azservicebus.DeadLetterOptions{Reason: to.Ptr("r")}))
		options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
		dead := program.Get(bench.client.NewReceiverForSubscription(topic, "s", options))
		program.Equal("reason", *bench.one(dead).DeadLetterReason, "r")
	})
	operation("subscription_deferral_and_peek", func(bench *bench) {
		topic := bench.topic("s")
		bench.send(topic, text("later"))
		receiver := bench.subscriber(topic, "s")
		message := bench.one(receiver)
		program.Check(receiver.DeferMessage(bench, message, nil))
		program.Equal("state", program.Get(receiver.PeekMessages(bench, 1, nil))[0].State, azservicebus.MessageStateDeferred)
		program.Equal("fetched", len(program.Get(receiver.ReceiveDeferredMessages(bench, []int64{*message.SequenceNumber}, nil))), 1)
	})
	operation("subscription_forwards_to_a_queue", func(bench *bench) {
		topic := bench.topic()
		queue := topic + "-queue"
		program.Get(bench.admin.CreateQueue(bench, queue, nil))
		properties := &admin.SubscriptionProperties{ForwardTo: to.Ptr(addressOf(queue))}
		program.Get(bench.admin.CreateSubscription(bench, topic, "s", &admin.CreateSubscriptionOptions{Properties: properties}))
		bench.send(topic, text("moved"))
		program.Equal("body", string(bench.one(bench.receiver(queue)).Body), "moved")
	})
}
