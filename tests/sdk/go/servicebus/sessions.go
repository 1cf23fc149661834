package main

import (
	"context"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func inSession(id, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(id)}
}

func (bench *bench) accept(queue, id string) *azservicebus.SessionReceiver {
	return program.Get(bench.client.AcceptSessionForQueue(bench, queue, id, nil))
}

func init() {
	operation("session_in_order", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.send(queue, inSession("a", "0"), inSession("b", "x"), inSession("a", "1"), inSession("a", "2"))
		session := bench.accept(queue, "a")
		program.Equal("id", session.SessionID(), "a")
		found := bench.take(session, 3)
		program.Equal("bodies", bodies(found), numbered(3))
		for _, message := range found {
			program.Check(session.CompleteMessage(bench, message, nil))
		}
		bench.nothing(session)
	})
	operation("next_session", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.send(queue, inSession("a", "0"), inSession("b", "1"))
		found := map[string]bool{}
		for range 2 {
			session := program.Get(bench.client.AcceptNextSessionForQueue(bench, queue, nil))
			found[session.SessionID()] = true
		}
		program.Equal("sessions", found, map[string]bool{"a": true, "b": true})
	})
	operation("session_state", func(bench *bench) {
		queue := bench.sessionQueue()
		session := bench.accept(queue, "a")
		program.Equal("first", program.Get(session.GetSessionState(bench, nil)), []byte(nil))
		program.Check(session.SetSessionState(bench, []byte("half way"), nil))
		program.Check(session.Close(bench))
		program.Equal("later", string(program.Get(bench.accept(queue, "a").GetSessionState(bench, nil))), "half way")
	})
	operation("session_state_is_cleared", func(bench *bench) {
		session := bench.accept(bench.sessionQueue(), "a")
		program.Check(session.SetSessionState(bench, []byte("half way"), nil))
		program.Check(session.SetSessionState(bench, nil, nil))
		program.Equal("state", program.Get(session.GetSessionState(bench, nil)), []byte(nil))
	})
	operation("empty_session_state_is_none", func(bench *bench) {
		session := bench.accept(bench.sessionQueue(), "a")
		program.Check(session.SetSessionState(bench, []byte{}, nil))
		program.Equal("state", program.Get(session.GetSessionState(bench, nil)), []byte(nil))
	})
	operation("renew_session_lock", func(bench *bench) {
		queue := bench.queue(admin.QueueProperties{RequiresSession: to.Ptr(true), LockDuration: to.Ptr("PT5S")})
		bench.send(queue, inSession("a", "slow"))
		session := bench.accept(queue, "a")
		message := bench.one(session)
		for range 3 {
			before := session.LockedUntil()
			time.Sleep(2500 * time.Millisecond)
			program.Check(session.RenewSessionLock(bench, nil))
			program.Holds("a later end", session.LockedUntil().After(before))
		}
		program.Check(session.CompleteMessage(bench, message, nil))
	})
	operation("locked_session_is_told", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.accept(queue, "a")
		_, err := bench.client.AcceptSessionForQueue(bench, queue, "a", nil)
		program.Has(err, "com.microsoft:session-cannot-be-locked")
	})
	operation("session_queue_wants_sessions", func(bench *bench) {
		_, err := bench.receiver(bench.sessionQueue()).ReceiveMessages(bench, 1, nil)
		program.Has(err, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.")
	})
	operation("no_session_to_accept", func(bench *bench) {
		queue := bench.sessionQueue()
		ctx, cancel := context.WithTimeout(bench, 2*time.Second)
		defer cancel()
		_, err := bench.client.AcceptNextSessionForQueue(ctx, queue, nil)
		program.Holds("an end in time", err != nil && bench.Err() == nil)
		bench.send(queue, inSession("a", "0"))
		program.Equal("id", program.Get(bench.client.AcceptNextSessionForQueue(bench, queue, nil)).SessionID(), "a")
	})
	operation("session_settlements", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.send(queue, inSession("a", "abandon"), inSession("a", "defer"), inSession("a", "dead"))
		session := bench.accept(queue, "a")
		program.Check(session.AbandonMessage(bench, bench.one(session), nil))
		program.Check(session.CompleteMessage(bench, bench.one(session), nil))
		deferred := bench.one(session)
		program.Check(session.DeferMessage(bench, deferred, nil))
		program.Check(session.DeadLetterMessage(bench, bench.one(session), nil))
		fetched := program.Get(session.ReceiveDeferredMessages(bench, []int64{*deferred.SequenceNumber}, nil))
		program.Equal("bodies", bodies(fetched), []string{"defer"})
		dead := bench.one(bench.deadLetters(queue))
		program.Equal("dead", []string{string(dead.Body), *dead.SessionID}, []string{"dead", "a"})
	})
	operation("peek_in_a_session", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.send(queue, inSession("a", "0"), inSession("b", "x"), inSession("a", "1"))
		session := bench.accept(queue, "a")
		// This SDK names its link and no session, so those of others may be among them.
		var found []string
		for _, message := range program.Get(session.PeekMessages(bench, 9, nil)) {
			if *message.SessionID == "a" {
				found = append(found, string(message.Body))
			}
		}
		program.Equal("bodies", found, numbered(2))
	})
	operation("scheduled_in_a_session", func(bench *bench) {
		queue := bench.sessionQueue()
		at := time.Now().Add(time.Second)
		program.Get(bench.sender(queue).ScheduleMessages(bench, []*azservicebus.Message{inSession("a", "soon")}, at, nil))
		program.Equal("body", string(bench.one(bench.accept(queue, "a")).Body), "soon")
	})
	operation("list_sessions", func(bench *bench) {
		queue := bench.sessionQueue()
		bench.send(queue, inSession("a", "0"), inSession("b", "1"))
		var found []string
		for pager := bench.client.NewListSessionsForQueuePager(queue, nil); pager.More(); {
			found = append(found, program.Get(pager.NextPage(bench)).Sessions...)
		}
		program.Equal("sessions", found, []string{"a", "b"})
	})
	operation("session_of_a_subscription", func(bench *bench) {
		topic := bench.topic()
		properties := &admin.SubscriptionProperties{RequiresSession: to.Ptr(true)}
		program.Get(bench.admin.CreateSubscription(bench, topic, "s", &admin.CreateSubscriptionOptions{Properties: properties}))
		bench.send(topic, inSession("a", "0"))
		session := program.Get(bench.client.AcceptNextSessionForSubscription(bench, topic, "s", nil))
		program.Equal("body", string(bench.one(session).Body), "0")
	})
}
