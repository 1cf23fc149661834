// The unmodified azeventhubs: `go run ./eventhubs [OPERATION…]`. Hubs have two partitions and are there before.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Of one operation: its clients, and short words for what all of them do.
type bench struct {
	*program.Trial
	producer *azeventhubs.ProducerClient
	consumer *azeventhubs.ConsumerClient
}

func operation(name string, do func(*bench)) {
	program.Add(name, func(trial *program.Trial) {
		hub := trial.Entity()
		producer, consumer := newProducer(program.ConnectionString, hub), newConsumer(hub, azeventhubs.DefaultConsumerGroup)
		defer closing(producer)
		defer closing(consumer)
		do(&bench{trial, producer, consumer})
	})
}

func closing(client interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = client.Close(ctx)
}

func newProducer(connectionString, hub string) *azeventhubs.ProducerClient {
	options := &azeventhubs.ProducerClientOptions{TLSConfig: program.Trust(), RetryOptions: quick(), CustomEndpoint: endpoint()}
	if program.Mode == "websocket" {
		options.NewWebSocketConn = webSocket
	}
	return program.Get(azeventhubs.NewProducerClientFromConnectionString(connectionString, hub, options))
}

func newConsumer(hub, group string) *azeventhubs.ConsumerClient {
	options := &azeventhubs.ConsumerClientOptions{TLSConfig: program.Trust(), RetryOptions: quick(), CustomEndpoint: endpoint()}
	if program.Mode == "websocket" {
		options.NewWebSocketConn = webSocket
	}
	return program.Get(azeventhubs.NewConsumerClientFromConnectionString(program.ConnectionString, hub, group, options))
}

func quick() azeventhubs.RetryOptions {
	return azeventhubs.RetryOptions{MaxRetries: 1, RetryDelay: 50 * time.Millisecond}
}

func endpoint() string {
	if program.Mode == "tls" {
		return program.Address
	}
	return ""
}

func webSocket(ctx context.Context, to azeventhubs.WebSocketConnParams) (net.Conn, error) {
	return program.WebSocket(ctx, to.Host)
}

// One batch: nil is anywhere.
func (bench *bench) publish(options *azeventhubs.EventDataBatchOptions, events ...*azeventhubs.EventData) {
	batch := program.Get(bench.producer.NewEventDataBatch(bench, options))
	for _, event := range events {
		program.Check(batch.AddEventData(event, nil))
	}
	program.Check(bench.producer.SendEventDataBatch(bench, batch, nil))
}

func into(partition string) *azeventhubs.EventDataBatchOptions {
	return &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(partition)}
}

func text(body string) *azeventhubs.EventData { return &azeventhubs.EventData{Body: []byte(body)} }

func numbered(count int) []string {
	found := make([]string, 0, count)
	for number := range count {
		found = append(found, fmt.Sprint(number))
	}
	return found
}

// So many events with their numbers as bodies, in partition 0.
func (bench *bench) numbers(count int) {
	var events []*azeventhubs.EventData
	for _, body := range numbered(count) {
		events = append(events, text(body))
	}
	bench.publish(into("0"), events...)
}

func earliest() azeventhubs.StartPosition { return azeventhubs.StartPosition{Earliest: to.Ptr(true)} }

func (bench *bench) open(partition string, options *azeventhubs.PartitionClientOptions) *azeventhubs.PartitionClient {
	return program.Get(bench.consumer.NewPartitionClient(partition, options))
}

func (bench *bench) from(start azeventhubs.StartPosition) *azeventhubs.PartitionClient {
	return bench.open("0", &azeventhubs.PartitionClientOptions{StartPosition: start})
}

type source interface {
	ReceiveEvents(context.Context, int, *azeventhubs.ReceiveEventsOptions) ([]*azeventhubs.ReceivedEventData, error)
}

// Exactly so many, however many calls it takes.
func (bench *bench) take(from source, count int) []*azeventhubs.ReceivedEventData {
	var found []*azeventhubs.ReceivedEventData
	ctx, cancel := context.WithTimeout(bench, 15*time.Second)
	defer cancel()
	for len(found) < count {
		more, err := from.ReceiveEvents(ctx, count-len(found), nil)
		if err != nil {
			program.Fail("only %d of %d events came: %v", len(found), count, err)
		}
		found = append(found, more...)
	}
	return found
}

func (bench *bench) nothing(from source) {
	ctx, cancel := context.WithTimeout(bench, 700*time.Millisecond)
	defer cancel()
	if found, err := from.ReceiveEvents(ctx, 1, nil); err == nil {
		program.Fail("%d events came", len(found))
	}
}

func bodies(events []*azeventhubs.ReceivedEventData) []string {
	found := make([]string, 0, len(events))
	for _, event := range events {
		found = append(found, string(event.Body))
	}
	return found
}

func code(err error) azeventhubs.ErrorCode {
	var told *azeventhubs.Error
	if !errors.As(err, &told) {
		program.Fail("the error is %v, none of the SDK's", err)
	}
	return told.Code
}

func main() { program.Main() }
