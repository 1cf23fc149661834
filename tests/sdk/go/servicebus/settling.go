package main

import (
	"strings"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func init() {
	operation("abandon_with_changes", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, &azservicebus.Message{ApplicationProperties: map[string]any{"a": "one"}})
		receiver := bench.receiver(queue)
		changes := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"a": "two", "b": true}}
		program.Check(receiver.AbandonMessage(bench, bench.one(receiver), changes))
		again := bench.one(receiver)
		program.Equal("properties", again.ApplicationProperties, map[string]any{"a": "two", "b": true})
		program.Equal("count", again.DeliveryCount, uint32(2))
	})
	operation("defer_and_fetch", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("later"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		program.Check(receiver.DeferMessage(bench, message, nil))
		bench.nothing(receiver)
		fetched := program.Get(receiver.ReceiveDeferredMessages(bench, []int64{*message.SequenceNumber}, nil))
		program.Equal("bodies", bodies(fetched), []string{"later"})
		program.Equal("state", fetched[0].State, azservicebus.MessageStateDeferred)
		program.Check(receiver.CompleteMessage(bench, fetched[0], nil))
		_, err := receiver.ReceiveDeferredMessages(bench, []int64{*message.SequenceNumber}, nil)
		program.Equal("code", code(err), azservicebus.CodeNotFound)
	})
	operation("deferring_counts", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("later"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		program.Check(receiver.DeferMessage(bench, message, nil))
		fetched := program.Get(receiver.ReceiveDeferredMessages(bench, []int64{*message.SequenceNumber}, nil))
		program.Equal("count", fetched[0].DeliveryCount, uint32(2))
	})
	operation("abandoned_deferred_stays_deferred", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("later"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		number := []int64{*message.SequenceNumber}
		program.Check(receiver.DeferMessage(bench, message, nil))
		fetched := program.Get(receiver.ReceiveDeferredMessages(bench, number, nil))
		program.Check(receiver.AbandonMessage(bench, fetched[0], nil))
		bench.nothing(receiver)
		program.Equal("again", len(program.Get(receiver.ReceiveDeferredMessages(bench, number, nil))), 1)
	})
	operation("dead_letter", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("bad"))
		receiver := bench.receiver(queue)
		why := &azservicebus.DeadLetterOptions{
			Reason: to.Ptr("Unreadable"), ErrorDescription: to.Ptr("no such format"), PropertiesToModify: map[string]any{"more": int64(1)},
		}
		program.Check(receiver.DeadLetterMessage(bench, bench.one(receiver), why))
		bench.nothing(receiver)
		dead := bench.deadLetters(queue)
		message := bench.one(dead)
		program.Equal("why", []string{*message.DeadLetterReason, *message.DeadLetterErrorDescription}, []string{"Unreadable", "no such format"})
		program.Equal("more", message.ApplicationProperties["more"], int64(1))
		program.Check(dead.CompleteMessage(bench, message, nil))
	})
	operation("dead_letters_do_not_count", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{MaxDeliveryCount: to.Ptr(int32(3))})
		bench.send(queue, text("bad"))
		receiver := bench.receiver(queue)
		program.Check(receiver.DeadLetterMessage(bench, bench.one(receiver), nil))
		dead := bench.deadLetters(queue)
		count := bench.one(dead)
		for range 5 {
			program.Check(dead.AbandonMessage(bench, count, nil))
			again := bench.one(dead)
			program.Equal("count", again.DeliveryCount, count.DeliveryCount)
			count = again
		}
	})
	operation("dead_letters_can_be_deferred", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("bad"))
		receiver, dead := bench.receiver(queue), bench.deadLetters(queue)
		program.Check(receiver.DeadLetterMessage(bench, bench.one(receiver), nil))
		message := bench.one(dead)
		program.Check(dead.DeferMessage(bench, message, nil))
		fetched := program.Get(dead.ReceiveDeferredMessages(bench, []int64{*message.SequenceNumber}, nil))
		program.Check(dead.CompleteMessage(bench, fetched[0], nil))
	})
	operation("too_many_deliveries", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{MaxDeliveryCount: to.Ptr(int32(2))})
		bench.send(queue, text("bad"))
		receiver := bench.receiver(queue)
		for range 2 {
			program.Check(receiver.AbandonMessage(bench, bench.one(receiver), nil))
		}
		program.Equal("reason", *bench.one(bench.deadLetters(queue)).DeadLetterReason, "MaxDeliveryCountExceeded")
	})
	operation("expired_message", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{DeadLetteringOnMessageExpiration: to.Ptr(true)})
		bench.send(queue, &azservicebus.Message{Body: []byte("old"), TimeToLive: to.Ptr(time.Second)})
		message := bench.one(bench.deadLetters(queue))
		program.Equal("reason", *message.DeadLetterReason, "TTLExpiredException")
	})
	operation("renew_lock", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{LockDuration: to.Ptr("PT5S")})
		bench.send(queue, text("slow"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		for range 3 {
			before := *message.LockedUntil
			time.Sleep(2500 * time.Millisecond)
			program.Check(receiver.RenewMessageLock(bench, message, nil))
			program.Holds("a later end", message.LockedUntil.After(before))
		}
		program.Check(receiver.CompleteMessage(bench, message, nil))
		bench.nothing(receiver)
	})
	operation("lost_lock", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{LockDuration: to.Ptr("PT5S")})
		bench.send(queue, text("slow"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		time.Sleep(5500 * time.Millisecond)
		program.Equal("renewing", code(receiver.RenewMessageLock(bench, message, nil)), azservicebus.CodeLockLost)
		program.Equal("completing", code(receiver.CompleteMessage(bench, message, nil)), azservicebus.CodeLockLost)
		program.Equal("count", bench.one(receiver).DeliveryCount, uint32(2))
	})
	operation("settled_after_its_link_closed", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("x"))
		first := bench.receiver(queue)
		message := bench.one(first)
		program.Check(first.Close(bench))
		second := bench.receiver(queue)
		program.Check(second.CompleteMessage(bench, message, nil))
		program.Equal("left", len(program.Get(second.PeekMessages(bench, 1, nil))), 0)
	})
	operation("forwarding", func(bench *bench) {
		queue := bench.queue()
		source := queue + "-source"
		// The token for it is signed for what stands here, so it is an address.
		properties := &admin.QueueProperties{ForwardTo: to.Ptr(addressOf(queue))}
		program.Get(bench.admin.CreateQueue(bench, source, &admin.CreateQueueOptions{Properties: properties}))
		bench.send(source, text("moved"))
		program.Equal("body", string(bench.one(bench.receiver(queue)).Body), "moved")
	})
	operation("forward_to_comes_back_as_sent", func(bench *bench) {
		queue := bench.queue()
		properties := &admin.QueueProperties{ForwardTo: to.Ptr(addressOf(queue))}
		program.Get(bench.admin.CreateQueue(bench, queue+"-source", &admin.CreateQueueOptions{Properties: properties}))
		found := program.Get(bench.admin.GetQueue(bench, queue+"-source", nil))
		program.Equal("target", *found.ForwardTo, addressOf(queue))
	})
}

func addressOf(entity string) string {
	return strings.Replace(program.Value("Endpoint"), "sb:", "https:", 1) + "/" + entity
}
