package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

type start = azeventhubs.StartPosition

func (bench *bench) reads(position start, wanted ...string) {
	program.Equal("bodies", bodies(bench.take(bench.from(position), len(wanted))), wanted)
}

func init() {
	operation("from_the_start", func(bench *bench) { bench.numbers(4); bench.reads(earliest(), "0", "1", "2", "3") })
	operation("from_a_number", func(bench *bench) {
		bench.numbers(4)
		bench.reads(start{SequenceNumber: to.Ptr(int64(1))}, "2", "3")
	})
	operation("from_a_number_inclusive", func(bench *bench) {
		bench.numbers(4)
		bench.reads(start{SequenceNumber: to.Ptr(int64(1)), Inclusive: true}, "1", "2", "3")
	})
	operation("from_an_offset", func(bench *bench) {
		bench.numbers(4)
		second := bench.take(bench.from(earliest()), 2)[1].Offset
		bench.reads(start{Offset: to.Ptr(second)}, "2", "3")
	})
	operation("from_an_offset_inclusive", func(bench *bench) {
		bench.numbers(4)
		second := bench.take(bench.from(earliest()), 2)[1].Offset
		bench.reads(start{Offset: to.Ptr(second), Inclusive: true}, "1", "2", "3")
	})
	operation("from_a_time", func(bench *bench) {
		bench.numbers(1)
		time.Sleep(50 * time.Millisecond)
		at := *bench.take(bench.from(earliest()), 1)[0].EnqueuedTime
		bench.publish(into("0"), text("later"))
		bench.reads(start{EnqueuedTime: to.Ptr(at)}, "later")
	})
	operation("from_a_time_inclusive", func(bench *bench) {
		bench.numbers(2)
		bench.reads(start{EnqueuedTime: to.Ptr(time.Now().Add(-time.Minute)), Inclusive: true}, "0", "1")
	})
	operation("from_the_end", func(bench *bench) {
		bench.numbers(2)
		client := bench.open("0", nil)
		bench.nothing(client)
		bench.publish(into("0"), text("new"))
		program.Equal("body", string(bench.take(client, 1)[0].Body), "new")
	})
	operation("without_prefetch", func(bench *bench) {
		bench.numbers(10)
		client := bench.open("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest(), Prefetch: -1})
		program.Equal("first", bodies(bench.take(client, 3)), numbered(3))
		program.Equal("next", string(bench.take(client, 1)[0].Body), "3")
	})
	operation("with_prefetch", func(bench *bench) {
		bench.numbers(1000)
		client := bench.open("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest(), Prefetch: 100})
		program.Equal("bodies", bodies(bench.take(client, 1000)), numbered(1000))
	})
	operation("events_come_while_reading", func(bench *bench) {
		client := bench.from(earliest())
		for _, body := range numbered(5) {
			bench.publish(into("0"), text(body))
			program.Equal("body", string(bench.take(client, 1)[0].Body), body)
		}
	})
	operation("another_consumer_group", func(bench *bench) {
		bench.numbers(2)
		other := newConsumer(bench.Entity(), "second")
		defer closing(other)
		client := program.Get(other.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest()}))
		program.Equal("bodies", bodies(bench.take(client, 2)), numbered(2))
		program.Equal("bodies", bodies(bench.take(bench.from(earliest()), 2)), numbered(2))
	})
	operation("two_readers_of_a_group", func(bench *bench) {
		bench.numbers(2)
		first, second := bench.from(earliest()), bench.from(earliest())
		program.Equal("first", bodies(bench.take(first, 2)), numbered(2))
		program.Equal("second", bodies(bench.take(second, 2)), numbered(2))
	})
	operation("higher_owner_takes_over", func(bench *bench) {
		bench.numbers(1)
		level := func(owner int64) *azeventhubs.PartitionClient {
			return bench.open("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest(), OwnerLevel: to.Ptr(owner)})
		}
		low, high := level(1), level(2)
		bench.take(low, 1)
		bench.take(high, 1)
		_, err := low.ReceiveEvents(bench, 1, nil)
		program.Equal("code", code(err), azeventhubs.ErrorCodeOwnershipLost)
		_, err = level(1).ReceiveEvents(bench, 1, nil)
		program.Has(err, "epoch") // an attach that is refused has no code of its own in this SDK
	})
	operation("reader_without_a_level_beside_an_owner_is_refused", func(bench *bench) {
		bench.numbers(1)
		bench.take(bench.open("0", &azeventhubs.PartitionClientOptions{StartPosition: earliest(), OwnerLevel: to.Ptr(int64(1))}), 1)
		_, err := bench.from(earliest()).ReceiveEvents(bench, 1, nil)
		program.Has(err, "epoch")
	})
	operation("both_partitions_at_once", func(bench *bench) {
		var all sync.WaitGroup
		found := make([][]string, 2)
		for index := range 2 {
			partition := fmt.Sprint(index)
			bench.publish(into(partition), text(partition))
			client := bench.open(partition, &azeventhubs.PartitionClientOptions{StartPosition: earliest()})
			all.Go(func() {
				events, _ := client.ReceiveEvents(bench, 1, nil)
				found[index] = bodies(events)
			})
		}
		all.Wait()
		program.Equal("bodies", found, [][]string{{"0"}, {"1"}})
	})
	operation("reader_is_closed_and_opened_again", func(bench *bench) {
		bench.numbers(3)
		for range 3 {
			client := bench.from(earliest())
			program.Equal("bodies", bodies(bench.take(client, 3)), numbered(3))
			program.Check(client.Close(bench))
		}
	})
	operation("processor", func(bench *bench) {
		store := newStore()
		bench.publish(into("0"), text("0"))
		bench.publish(into("1"), text("1"))
		program.Equal("bodies", bench.process(bench.consumer, store, 2), map[string]bool{"0": true, "1": true})
	})
	operation("processor_goes_on_from_its_checkpoint", func(bench *bench) {
		store := newStore()
		bench.publish(into("0"), text("first"))
		bench.process(bench.consumer, store, 1)
		bench.publish(into("0"), text("second"))
		program.Equal("bodies", bench.process(bench.consumer, store, 1), map[string]bool{"second": true})
	})
	operation("two_processors_share", func(bench *bench) {
		store, other := newStore(), newConsumer(bench.Entity(), azeventhubs.DefaultConsumerGroup)
		defer closing(other)
		ctx, cancel := context.WithCancel(bench)
		defer cancel()
		owners := make(chan string, 9)
		for _, consumer := range []*azeventhubs.ConsumerClient{bench.consumer, other} {
			processor := program.Get(azeventhubs.NewProcessor(consumer, store, balanced()))
			go func() { _ = processor.Run(ctx) }()
			go func() {
				for client := processor.NextPartitionClient(ctx); client != nil; client = processor.NextPartitionClient(ctx) {
					owners <- client.PartitionID()
				}
			}()
		}
		<-owners
		<-owners
		for len(store.owners()) < 2 {
			program.Check(bench.Err())
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func balanced() *azeventhubs.ProcessorOptions {
	return &azeventhubs.ProcessorOptions{
		UpdateInterval: 200 * time.Millisecond, StartPositions: azeventhubs.StartPositions{Default: earliest()},
		LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy,
	}
}

// Until so many events have come, each of them a checkpoint.
func (bench *bench) process(consumer *azeventhubs.ConsumerClient, store *store, count int) map[string]bool {
	processor := program.Get(azeventhubs.NewProcessor(consumer, store, balanced()))
	ctx, cancel := context.WithCancel(bench)
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	events := make(chan string)
	go func() {
		for client := processor.NextPartitionClient(ctx); client != nil; client = processor.NextPartitionClient(ctx) {
			go func() {
				defer closing(client)
				for {
					found, err := client.ReceiveEvents(ctx, 1, nil)
					if err != nil {
						return
					}
					for _, event := range found {
						_ = client.UpdateCheckpoint(ctx, event, nil)
						select {
						case events <- string(event.Body):
						case <-ctx.Done():
						}
					}
				}
			}()
		}
	}()
	found := map[string]bool{}
	for len(found) < count {
		select {
		case body := <-events:
			found[body] = true
		case err := <-ended:
			program.Fail("the processor ended: %v", err)
		case <-bench.Done():
			program.Fail("only %d of %d events came", len(found), count)
		}
	}
	cancel()
	<-ended
	return found
}

// A checkpoint store in memory.
type store struct {
	lock        sync.Mutex
	checkpoints map[string]azeventhubs.Checkpoint
	ownerships  map[string]azeventhubs.Ownership
	tag         int
}

func newStore() *store {
	return &store{checkpoints: map[string]azeventhubs.Checkpoint{}, ownerships: map[string]azeventhubs.Ownership{}}
}

func (store *store) owners() map[string]bool {
	store.lock.Lock()
	defer store.lock.Unlock()
	found := map[string]bool{}
	for _, ownership := range store.ownerships {
		found[ownership.OwnerID] = true
	}
	return found
}

func (store *store) ClaimOwnership(_ context.Context, wanted []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	var claimed []azeventhubs.Ownership
	for _, each := range wanted {
		present, isThere := store.ownerships[each.PartitionID]
		if isThere && (each.ETag == nil || *present.ETag != *each.ETag) {
			continue
		}
		store.tag++
		each.ETag, each.LastModifiedTime = to.Ptr(azcore.ETag(fmt.Sprint(store.tag))), time.Now().UTC()
		store.ownerships[each.PartitionID] = each
		claimed = append(claimed, each)
	}
	return claimed, nil
}

func (store *store) ListCheckpoints(context.Context, string, string, string, *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	var found []azeventhubs.Checkpoint
	for _, each := range store.checkpoints {
		found = append(found, each)
	}
	return found, nil
}

func (store *store) ListOwnership(context.Context, string, string, string, *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	store.lock.Lock()
	defer store.lock.Unlock()
	var found []azeventhubs.Ownership
	for _, each := range store.ownerships {
		found = append(found, each)
	}
	return found, nil
}

func (store *store) SetCheckpoint(_ context.Context, checkpoint azeventhubs.Checkpoint, _ *azeventhubs.SetCheckpointOptions) error {
	store.lock.Lock()
	defer store.lock.Unlock()
	store.checkpoints[checkpoint.PartitionID] = checkpoint
	return nil
}
