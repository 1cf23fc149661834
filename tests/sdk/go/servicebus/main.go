// The unmodified azservicebus: `go run ./servicebus [OPERATION…]`.
package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// Of one operation: its clients, and short words for what all of them do.
type bench struct {
	*program.Trial
	client *azservicebus.Client
	admin  *admin.Client
}

func operation(name string, do func(*bench)) {
	program.Add(name, func(trial *program.Trial) {
		client := program.Get(newClient(program.ConnectionString))
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			_ = client.Close(ctx)
		}()
		do(&bench{trial, client, newAdmin(program.ConnectionString)})
	})
}

func newClient(connectionString string) (*azservicebus.Client, error) {
	options := &azservicebus.ClientOptions{
		TLSConfig:    program.Trust(),
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 50 * time.Millisecond},
	}
	if program.Mode == "tls" {
		options.CustomEndpoint = program.Address
	}
	if program.Mode == "websocket" {
		options.NewWebSocketConn = func(ctx context.Context, to azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return program.WebSocket(ctx, to.Host)
		}
	}
	return azservicebus.NewClientFromConnectionString(connectionString, options)
}

func newAdmin(connectionString string) *admin.Client {
	options := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: program.HTTP()}}
	options.Retry.MaxRetries = -1
	return program.Get(admin.NewClientFromConnectionString(connectionString, options))
}

func (bench *bench) queue(properties ...admin.QueueProperties) string {
	if program.Given != "" {
		return program.Given
	}
	options := &admin.CreateQueueOptions{}
	if len(properties) > 0 {
		options.Properties = &properties[0]
	}
	program.Get(bench.admin.CreateQueue(bench, bench.Entity(), options))
	return bench.Entity()
}

func (bench *bench) sessionQueue() string {
	return bench.queue(admin.QueueProperties{RequiresSession: to.Ptr(true)})
}

func (bench *bench) topic(subscriptions ...string) string {
	program.Get(bench.admin.CreateTopic(bench, bench.Entity(), nil))
	for _, name := range subscriptions {
		program.Get(bench.admin.CreateSubscription(bench, bench.Entity(), name, nil))
	}
	return bench.Entity()
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func (bench *bench) sender(entity string) *azservicebus.Sender {
	return program.Get(bench.client.NewSender(entity, nil))
}

func (bench *bench) send(entity string, messages ...*azservicebus.Message) {
	sender := bench.sender(entity)
	for _, message := range messages {
		program.Check(sender.SendMessage(bench, message, nil))
	}
	program.Check(sender.Close(bench))
}

func (bench *bench) receiver(queue string) *azservicebus.Receiver {
	return program.Get(bench.client.NewReceiverForQueue(queue, nil))
}

func (bench *bench) deadLetters(queue string) *azservicebus.Receiver {
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	return program.Get(bench.client.NewReceiverForQueue(queue, options))
}

// What can be received from: a receiver of either kind.
type source interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// Exactly so many, however many calls it takes.
func (bench *bench) take(from source, count int) []*azservicebus.ReceivedMessage {
	var found []*azservicebus.ReceivedMessage
	ctx, cancel := context.WithTimeout(bench, 15*time.Second)
	defer cancel()
	for len(found) < count {
		more, err := from.ReceiveMessages(ctx, count-len(found), nil)
		if err != nil {
			program.Fail("only %d of %d messages came: %v", len(found), count, err)
		}
		found = append(found, more...)
	}
	return found
}

func (bench *bench) one(from source) *azservicebus.ReceivedMessage { return bench.take(from, 1)[0] }

// For a moment nothing comes.
func (bench *bench) nothing(from source) {
	ctx, cancel := context.WithTimeout(bench, 700*time.Millisecond)
	defer cancel()
	if found, err := from.ReceiveMessages(ctx, 1, nil); err == nil {
		program.Fail("%d messages came, the first is %q", len(found), found[0].Body)
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := make([]string, 0, len(messages))
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func numbered(count int) []string {
	found := make([]string, 0, count)
	for number := range count {
		found = append(found, fmt.Sprint(number))
	}
	return found
}

func main() { program.Main() }
