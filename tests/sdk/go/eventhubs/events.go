package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// In a batch of its own, in partition 0.
func (bench *bench) annotated(message azeventhubs.AMQPAnnotatedMessage) azeventhubs.AMQPAnnotatedMessage {
	batch := program.Get(bench.producer.NewEventDataBatch(bench, into("0")))
	program.Check(batch.AddAMQPAnnotatedMessage(&message, nil))
	program.Check(bench.producer.SendEventDataBatch(bench, batch, nil))
	return message
}

func init() {
	operation("publish_and_read", func(bench *bench) {
		bench.publish(into("0"), text("hello"))
		event := bench.take(bench.from(earliest()), 1)[0]
		program.Equal("body", string(event.Body), "hello")
		program.Equal("number and offset", []any{event.SequenceNumber, event.Offset != ""}, []any{int64(0), true})
		program.Holds("a time", time.Since(*event.EnqueuedTime) < time.Minute)
	})
	operation("every_property_comes_back", func(bench *bench) {
		sent := &azeventhubs.EventData{
			Body: []byte("body"), ContentType: to.Ptr("text/plain"), CorrelationID: "correlation", MessageID: to.Ptr("id"),
			Properties: map[string]any{"text": "t", "long": int64(8), "half": 0.5, "yes": true, "bytes": []byte{1}},
		}
		bench.publish(into("0"), sent)
		found := bench.take(bench.from(earliest()), 1)[0]
		program.Equal("properties", found.Properties, sent.Properties)
		program.Equal("the rest", []any{*found.ContentType, found.CorrelationID, *found.MessageID}, []any{"text/plain", "correlation", "id"})
	})
	operation("annotated_message", func(bench *bench) {
		body := azeventhubs.AMQPAnnotatedMessageBody{Value: map[string]any{"a": int64(1)}}
		bench.annotated(azeventhubs.AMQPAnnotatedMessage{Body: body})
		program.Equal("body", bench.take(bench.from(earliest()), 1)[0].RawAMQPMessage.Body, body)
	})
	operation("sequence_body_and_footer", func(bench *bench) {
		sent := bench.annotated(azeventhubs.AMQPAnnotatedMessage{
			Body: azeventhubs.AMQPAnnotatedMessageBody{Sequence: [][]any{{"a"}, {"b"}}}, Footer: map[any]any{"sum": int64(7)},
		})
		found := bench.take(bench.from(earliest()), 1)[0].RawAMQPMessage
		program.Equal("body", found.Body, sent.Body)
		program.Equal("footer", found.Footer, sent.Footer)
	})
	operation("several_data_sections", func(bench *bench) {
		sent := bench.annotated(azeventhubs.AMQPAnnotatedMessage{Body: azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("a"), []byte("b")}}})
		program.Equal("body", bench.take(bench.from(earliest()), 1)[0].RawAMQPMessage.Body, sent.Body)
	})
	operation("message_id_of_each_type", func(bench *bench) {
		ids := []any{"text", uint64(7), []byte{1, 2}}
		for _, id := range ids {
			bench.annotated(azeventhubs.AMQPAnnotatedMessage{
				Body:       azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("x")}},
				Properties: &azeventhubs.AMQPAnnotatedMessageProperties{MessageID: id},
			})
		}
		for index, event := range bench.take(bench.from(earliest()), len(ids)) {
			program.Equal("id", event.RawAMQPMessage.Properties.MessageID, ids[index])
		}
	})
	operation("property_of_each_type", func(bench *bench) {
		at := time.UnixMilli(1_700_000_000_123).UTC()
		sent := &azeventhubs.EventData{Properties: map[string]any{
			"int32": int32(7), "int64": int64(8), "uint64": uint64(9), "float": 0.5, "yes": true, "text": "t", "bytes": []byte{1}, "time": at, "nothing": nil,
		}}
		bench.publish(into("0"), sent)
		found := bench.take(bench.from(earliest()), 1)[0].Properties
		found["time"] = found["time"].(time.Time).UTC()
		program.Equal("properties", found, sent.Properties)
	})
	operation("empty_body", func(bench *bench) {
		bench.publish(into("0"), &azeventhubs.EventData{})
		program.Equal("length", len(bench.take(bench.from(earliest()), 1)[0].Body), 0)
	})
	operation("annotation_of_the_sender", func(bench *bench) {
		bench.annotated(azeventhubs.AMQPAnnotatedMessage{
			Body:               azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("x")}},
			MessageAnnotations: map[any]any{"x-own": "mine"},
		})
		program.Equal("annotation", bench.take(bench.from(earliest()), 1)[0].SystemProperties["x-own"], any("mine"))
	})
	operation("many_at_once", func(bench *bench) {
		var all sync.WaitGroup
		for _, body := range numbered(20) {
			all.Go(func() {
				batch, err := bench.producer.NewEventDataBatch(bench, into("0"))
				if err == nil && batch.AddEventData(text(body), nil) == nil {
					_ = bench.producer.SendEventDataBatch(bench, batch, nil)
				}
			})
		}
		all.Wait()
		found := map[string]bool{}
		for _, body := range bodies(bench.take(bench.from(earliest()), 20)) {
			found[body] = true
		}
		program.Equal("different events", len(found), 20)
	})
	operation("by_key", func(bench *bench) {
		key := &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr("a key")}
		bench.publish(key, text("one"))
		bench.publish(key, text("two"))
		found := map[string][]string{}
		for _, partition := range []string{"0", "1"} {
			if properties := program.Get(bench.consumer.GetPartitionProperties(bench, partition, nil)); !properties.IsEmpty {
				client := bench.open(partition, &azeventhubs.PartitionClientOptions{StartPosition: earliest()})
				events := bench.take(client, 2)
				found[*events[0].PartitionKey] = bodies(events)
			}
		}
		program.Equal("events", found, map[string][]string{"a key": {"one", "two"}})
	})
	operation("anywhere", func(bench *bench) {
		for _, body := range numbered(4) {
			bench.publish(nil, text(body))
		}
		count := int64(0)
		for _, partition := range []string{"0", "1"} {
			count += program.Get(bench.producer.GetPartitionProperties(bench, partition, nil)).LastEnqueuedSequenceNumber + 1
		}
		program.Equal("events", count, int64(4))
	})
	operation("batch_of_many", func(bench *bench) {
		bench.numbers(500)
		program.Equal("bodies", bodies(bench.take(bench.from(earliest()), 500)), numbered(500))
	})
	operation("batch_knows_its_bound", func(bench *bench) {
		batch := program.Get(bench.producer.NewEventDataBatch(bench, into("0")))
		program.Check(batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, 900_000)}, nil))
		err := batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, 200_000)}, nil)
		program.Holds("ErrEventDataTooLarge", errors.Is(err, azeventhubs.ErrEventDataTooLarge))
		program.Check(bench.producer.SendEventDataBatch(bench, batch, nil))
	})
	operation("batch_with_a_bound_of_its_own", func(bench *bench) {
		options := &azeventhubs.EventDataBatchOptions{MaxBytes: 1000, PartitionID: to.Ptr("0")}
		batch := program.Get(bench.producer.NewEventDataBatch(bench, options))
		err := batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, 2000)}, nil)
		program.Holds("ErrEventDataTooLarge", errors.Is(err, azeventhubs.ErrEventDataTooLarge))
	})
	operation("large_event", func(bench *bench) {
		body := bytes.Repeat([]byte("x"), 500_000)
		bench.publish(into("1"), &azeventhubs.EventData{Body: body})
		client := bench.open("1", &azeventhubs.PartitionClientOptions{StartPosition: earliest()})
		program.Holds("the same bytes", bytes.Equal(bench.take(client, 1)[0].Body, body))
	})
	operation("what_is_read_can_be_published_again", func(bench *bench) {
		sent := &azeventhubs.EventData{Body: []byte("again"), Properties: map[string]any{"color": "red"}}
		bench.publish(into("0"), sent)
		client := bench.from(earliest())
		first := bench.take(client, 1)[0]
		bench.publish(into("0"), &first.EventData)
		second := bench.take(client, 1)[0]
		program.Equal("properties", second.Properties, sent.Properties)
		batch := program.Get(bench.producer.NewEventDataBatch(bench, into("0")))
		program.Check(batch.AddAMQPAnnotatedMessage(second.RawAMQPMessage, nil))
		program.Check(bench.producer.SendEventDataBatch(bench, batch, nil))
		program.Equal("number", bench.take(client, 1)[0].SequenceNumber, int64(2))
	})
	operation("properties_of_a_hub", func(bench *bench) {
		found := program.Get(bench.producer.GetEventHubProperties(bench, nil))
		program.Equal("hub", []any{found.Name, found.PartitionIDs}, []any{bench.Entity(), []string{"0", "1"}})
		program.Holds("a time", time.Since(found.CreatedOn) < time.Hour)
		program.Equal("again", program.Get(bench.consumer.GetEventHubProperties(bench, nil)), found)
	})
	operation("properties_of_a_partition", func(bench *bench) {
		bench.numbers(3)
		found := program.Get(bench.consumer.GetPartitionProperties(bench, "0", nil))
		program.Equal("numbers", []int64{found.BeginningSequenceNumber, found.LastEnqueuedSequenceNumber}, []int64{0, 2})
		program.Equal("the rest", []any{found.PartitionID, found.IsEmpty, found.EventHubName}, []any{"0", false, bench.Entity()})
		program.Holds("an offset", found.LastEnqueuedOffset != "")
	})
	operation("properties_of_an_empty_partition", func(bench *bench) {
		found := program.Get(bench.consumer.GetPartitionProperties(bench, "1", nil))
		program.Equal("facts", []any{found.IsEmpty, found.LastEnqueuedSequenceNumber}, []any{true, int64(-1)})
	})
	operation("missing_partition_is_told", func(bench *bench) {
		_, err := bench.consumer.GetPartitionProperties(bench, "9", nil)
		program.Holds("an error", err != nil)
		_, err = bench.open("9", nil).ReceiveEvents(bench, 1, nil)
		program.Has(err, "The specified partition is invalid for an EventHub partition sender or receiver")
	})
	operation("publishing_to_a_missing_partition_is_told", func(bench *bench) {
		_, err := bench.producer.NewEventDataBatch(bench, into("9"))
		program.Has(err, "The specified partition is invalid for an EventHub partition sender or receiver")
	})
	operation("missing_hub_is_told", func(bench *bench) {
		producer := newProducer(program.ConnectionString, bench.Entity()+"-missing")
		defer closing(producer)
		_, err := producer.NewEventDataBatch(bench, nil)
		program.Has(err, "could not be found")
		_, err = producer.GetEventHubProperties(bench, nil)
		program.Holds("an error", err != nil)
	})
	operation("missing_consumer_group_is_told", func(bench *bench) {
		consumer := newConsumer(bench.Entity(), "missing")
		defer closing(consumer)
		_, err := program.Get(consumer.NewPartitionClient("0", nil)).ReceiveEvents(bench, 1, nil)
		program.Has(err, "could not be found")
	})
	operation("wrong_key_is_told", func(bench *bench) {
		emulator := ""
		if program.Value("UseDevelopmentEmulator") != "" {
			emulator = ";UseDevelopmentEmulator=true"
		}
		producer := newProducer(fmt.Sprintf("Endpoint=%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong%s",
			program.Value("Endpoint"), emulator), bench.Entity())
		defer closing(producer)
		_, err := producer.NewEventDataBatch(bench, nil)
		program.Equal("code", code(err), azeventhubs.ErrorCodeUnauthorizedAccess)
	})
	operation("hub_in_the_connection_string", func(bench *bench) {
		producer := newProducer(program.ConnectionString+";EntityPath="+bench.Entity(), "")
		defer closing(producer)
		batch := program.Get(producer.NewEventDataBatch(bench, into("0")))
		program.Check(batch.AddEventData(text("x"), nil))
		program.Check(producer.SendEventDataBatch(bench, batch, nil))
	})
}
