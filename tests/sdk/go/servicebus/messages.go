package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func init() {
	operation("send_receive_complete", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("hello"))
		receiver := bench.receiver(queue)
		message := bench.one(receiver)
		program.Equal("body", string(message.Body), "hello")
		program.Equal("count", message.DeliveryCount, uint32(1)) // this SDK counts the present one
		program.Check(receiver.CompleteMessage(bench, message, nil))
		bench.nothing(receiver)
	})
	operation("every_property_comes_back", everyProperty)
	operation("value_body", func(bench *bench) {
		queue := bench.queue()
		body := azservicebus.AMQPAnnotatedMessageBody{Value: map[string]any{"a": int64(1), "b": "two"}}
		message := &azservicebus.AMQPAnnotatedMessage{Body: body}
		program.Check(bench.sender(queue).SendAMQPAnnotatedMessage(bench, message, nil))
		program.Equal("body", bench.one(bench.receiver(queue)).RawAMQPMessage.Body, body)
	})
	operation("sequence_body", func(bench *bench) {
		queue := bench.queue()
		body := azservicebus.AMQPAnnotatedMessageBody{Sequence: [][]any{{int64(1), "two"}, {true}}}
		message := &azservicebus.AMQPAnnotatedMessage{Body: body}
		program.Check(bench.sender(queue).SendAMQPAnnotatedMessage(bench, message, nil))
		program.Equal("body", bench.one(bench.receiver(queue)).RawAMQPMessage.Body, body)
	})
	operation("several_data_sections_and_a_footer", func(bench *bench) {
		queue := bench.queue()
		message := &azservicebus.AMQPAnnotatedMessage{
			Body:   azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("one"), []byte("two")}},
			Footer: map[any]any{"sum": int64(7)},
		}
		program.Check(bench.sender(queue).SendAMQPAnnotatedMessage(bench, message, nil))
		found := bench.one(bench.receiver(queue)).RawAMQPMessage
		program.Equal("body", found.Body.Data, message.Body.Data)
		program.Equal("footer", found.Footer, message.Footer)
	})
	operation("large_message", func(bench *bench) {
		queue := bench.queue()
		body := bytes.Repeat([]byte("x"), 200_000)
		bench.send(queue, &azservicebus.Message{Body: body})
		program.Holds("the same bytes", bytes.Equal(bench.one(bench.receiver(queue)).Body, body))
	})
	operation("message_too_large", func(bench *bench) {
		sender := bench.sender(bench.queue())
		err := sender.SendMessage(bench, &azservicebus.Message{Body: make([]byte, 2_000_000)}, nil)
		program.Holds("ErrMessageTooLarge", errors.Is(err, azservicebus.ErrMessageTooLarge))
		program.Check(sender.SendMessage(bench, text("still works"), nil))
	})
	operation("batch", func(bench *bench) {
		queue := bench.queue()
		sender := bench.sender(queue)
		batch := program.Get(sender.NewMessageBatch(bench, nil))
		for _, body := range numbered(100) {
			program.Check(batch.AddMessage(text(body), nil))
		}
		program.Check(sender.SendMessageBatch(bench, batch, nil))
		program.Equal("bodies", bodies(bench.take(bench.receiver(queue), 100)), numbered(100))
	})
	operation("batch_knows_its_bound", func(bench *bench) {
		sender := bench.sender(bench.queue())
		batch := program.Get(sender.NewMessageBatch(bench, nil))
		program.Check(batch.AddMessage(&azservicebus.Message{Body: make([]byte, 200_000)}, nil))
		err := batch.AddMessage(&azservicebus.Message{Body: make([]byte, 1_000_000)}, nil)
		program.Holds("ErrMessageTooLarge", errors.Is(err, azservicebus.ErrMessageTooLarge))
		program.Check(sender.SendMessageBatch(bench, batch, nil))
	})
	operation("many_messages", func(bench *bench) {
		queue := bench.queue()
		sender, receiver := bench.sender(queue), bench.receiver(queue)
		for range 10 {
			batch := program.Get(sender.NewMessageBatch(bench, nil))
			for range 100 {
				program.Check(batch.AddMessage(text("x"), nil))
			}
			program.Check(sender.SendMessageBatch(bench, batch, nil))
		}
		for count := 0; count < 1000; {
			for _, message := range bench.take(receiver, 50) {
				program.Check(receiver.CompleteMessage(bench, message, nil))
				count++
			}
		}
		bench.nothing(receiver)
	})
	operation("receive_and_delete", func(bench *bench) {
		queue := bench.queue()
		bench.send(queue, text("a"), text("b"))
		options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
		program.Equal("bodies", bodies(bench.take(program.Get(bench.client.NewReceiverForQueue(queue, options)), 2)), []string{"a", "b"})
		program.Equal("left", len(program.Get(bench.receiver(queue).PeekMessages(bench, 5, nil))), 0)
	})
	operation("a_receive_can_be_given_up", func(bench *bench) {
		queue := bench.queue()
		receiver := bench.receiver(queue)
		bench.nothing(receiver)
		bench.send(queue, text("later"))
		program.Equal("body", string(bench.one(receiver).Body), "later")
	})
	operation("peek", func(bench *bench) {
		queue := bench.queue()
		for _, body := range numbered(5) {
			bench.send(queue, text(body))
		}
		receiver := bench.receiver(queue)
		first := program.Get(receiver.PeekMessages(bench, 2, nil))
		second := program.Get(receiver.PeekMessages(bench, 9, nil))
		program.Equal("bodies", append(bodies(first), bodies(second)...), numbered(5))
		program.Equal("state", first[0].State, azservicebus.MessageStateActive)
	})
	operation("peek_from_a_number", func(bench *bench) {
		queue := bench.queue()
		for _, body := range numbered(5) {
			bench.send(queue, text(body))
		}
		receiver := bench.receiver(queue)
		number := program.Get(receiver.PeekMessages(bench, 3, nil))[2].SequenceNumber
		again := program.Get(receiver.PeekMessages(bench, 9, &azservicebus.PeekMessagesOptions{FromSequenceNumber: number}))
		program.Equal("bodies", bodies(again), []string{"2", "3", "4"})
	})
	operation("schedule_and_cancel", func(bench *bench) {
		queue := bench.queue()
		sender, receiver := bench.sender(queue), bench.receiver(queue)
		both := []*azservicebus.Message{text("gone"), text("kept")}
		numbers := program.Get(sender.ScheduleMessages(bench, both, time.Now().Add(time.Hour), nil))
		waiting := program.Get(receiver.PeekMessages(bench, 5, nil))
		program.Equal("state", waiting[0].State, azservicebus.MessageStateScheduled)
		program.Check(sender.CancelScheduledMessages(bench, numbers[:1], nil))
		options := &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(0))}
		program.Equal("left", bodies(program.Get(receiver.PeekMessages(bench, 5, options))), []string{"kept"})
	})
	operation("scheduled_message_comes_in_time", func(bench *bench) {
		queue := bench.queue()
		at := time.Now().Add(2 * time.Second)
		program.Get(bench.sender(queue).ScheduleMessages(bench, []*azservicebus.Message{text("soon")}, at, nil))
		receiver := bench.receiver(queue)
		bench.nothing(receiver)
		message := bench.one(receiver)
		program.Equal("body", string(message.Body), "soon")
		program.Holds("not early", !time.Now().Before(at.Truncate(time.Second)))
		program.Equal("state", message.State, azservicebus.MessageStateScheduled)
	})
	operation("scheduled_by_its_property", func(bench *bench) {
		queue := bench.queue()
		message := text("soon")
		message.ScheduledEnqueueTime = to.Ptr(time.Now().Add(2 * time.Second))
		bench.send(queue, message)
		receiver := bench.receiver(queue)
		bench.nothing(receiver)
		program.Equal("body", string(bench.one(receiver).Body), "soon")
	})
	operation("what_is_received_can_be_sent_again", func(bench *bench) {
		queue := bench.queue()
		message := text("again")
		message.PartitionKey, message.MessageID = to.Ptr("key"), to.Ptr("id")
		message.ApplicationProperties = map[string]any{"color": "red"}
		bench.send(queue, message)
		receiver := bench.receiver(queue)
		first := bench.one(receiver)
		program.Check(receiver.CompleteMessage(bench, first, nil))
		bench.send(queue, first.Message())
		second := bench.one(receiver)
		program.Check(receiver.CompleteMessage(bench, second, nil))
		program.Equal("key", *second.PartitionKey, "key")
		program.Equal("properties", second.ApplicationProperties, message.ApplicationProperties)
		program.Check(bench.sender(queue).SendAMQPAnnotatedMessage(bench, second.RawAMQPMessage, nil))
		program.Equal("key", *bench.one(receiver).PartitionKey, "key")
	})
	operation("duplicates_are_dropped", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{RequiresDuplicateDetection: to.Ptr(true)})
		for _, id := range []string{"a", "a", "b", "a"} {
			bench.send(queue, &azservicebus.Message{Body: []byte(id), MessageID: to.Ptr(id)})
		}
		receiver := bench.receiver(queue)
		program.Equal("bodies", bodies(bench.take(receiver, 2)), []string{"a", "b"})
		bench.nothing(receiver)
	})
	operation("partitioned_queue", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{EnablePartitioning: to.Ptr(true)})
		for _, body := range numbered(20) {
			bench.send(queue, &azservicebus.Message{Body: []byte(body), PartitionKey: to.Ptr("one key")})
		}
		program.Equal("bodies", bodies(bench.take(bench.receiver(queue), 20)), numbered(20))
	})
	operation("missing_queue_is_told", func(bench *bench) {
		err := bench.sender(bench.Entity()).SendMessage(bench, text("x"), nil)
		program.Equal("code", code(err), azservicebus.CodeNotFound)
		_, err = bench.receiver(bench.Entity()).ReceiveMessages(bench, 1, nil)
		program.Equal("code", code(err), azservicebus.CodeNotFound)
		program.Has(err, "could not be found")
	})
	operation("wrong_key_is_told", func(bench *bench) {
		queue := bench.queue()
		stranger := program.Get(newClient(fmt.Sprintf("Endpoint=%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong%s",
			program.Value("Endpoint"), emulatorSwitch())))
		defer func() { _ = stranger.Close(context.Background()) }()
		err := program.Get(stranger.NewSender(queue, nil)).SendMessage(bench, text("x"), nil)
		program.Equal("code", code(err), azservicebus.CodeUnauthorizedAccess)
	})
	operation("two_clients_at_once", func(bench *bench) {
		queue := bench.queue()
		other := program.Get(newClient(program.ConnectionString))
		defer func() { _ = other.Close(context.Background()) }()
		got := make(chan string, 1)
		go func() {
			receiver := program.Get(other.NewReceiverForQueue(queue, nil))
			found, err := receiver.ReceiveMessages(bench, 1, nil)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- string(found[0].Body)
		}()
		bench.send(queue, text("between"))
		program.Equal("body", <-got, "between")
	})
}

func emulatorSwitch() string {
	if program.Value("UseDevelopmentEmulator") != "" {
		return ";UseDevelopmentEmulator=true"
	}
	return ""
}

func code(err error) azservicebus.Code {
	var told *azservicebus.Error
	if !errors.As(err, &told) {
		program.Fail("the error is %v, none of the SDK's", err)
	}
	return told.Code
}

func everyProperty(bench *bench) {
	queue := bench.queue()
	sent := &azservicebus.Message{
		Body:             []byte("body"),
		MessageID:        to.Ptr("id"),
		Subject:          to.Ptr("label"),
		CorrelationID:    to.Ptr("correlation"),
		ContentType:      to.Ptr("text/plain"),
		ReplyTo:          to.Ptr("somewhere"),
		ReplyToSessionID: to.Ptr("a session"),
		To:               to.Ptr("someone"),
		PartitionKey:     to.Ptr("key"),
		TimeToLive:       to.Ptr(time.Minute),
		ApplicationProperties: map[string]any{
			"text": "t", "int": int32(7), "long": int64(8), "half": 0.5, "yes": true, "none": nil,
			"when": time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), "bytes": []byte{1, 2},
		},
	}
	bench.send(queue, sent)
	found := bench.one(bench.receiver(queue))
	back := found.Message()
	program.Equal("application properties", back.ApplicationProperties, sent.ApplicationProperties)
	program.Equal("the rest", []string{*back.MessageID, *back.Subject, *back.CorrelationID, *back.ContentType, *back.ReplyTo,
		*back.ReplyToSessionID, *back.To, *back.PartitionKey}, []string{"id", "label", "correlation", "text/plain", "somewhere",
		"a session", "someone", "key"})
	program.Equal("time to live", *found.TimeToLive, time.Minute)
	program.Equal("number", *found.SequenceNumber, int64(1))
	program.Holds("a lock", found.LockedUntil.After(time.Now()))
	program.Holds("an expiry", found.ExpiresAt.Sub(*found.EnqueuedTime) == time.Minute)
	program.Equal("state", found.State, azservicebus.MessageStateActive)
}
