package main

import (
	"fmt"
	"time"

	"busway/sdk/program"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func isRecent(times ...time.Time) bool {
	for _, each := range times {
		if age := time.Since(each); age < -time.Minute || age > time.Hour {
			return false
		}
	}
	return true
}

func init() {
	operation("life_of_a_queue", func(bench *bench) {
		sent := admin.QueueProperties{
			LockDuration: to.Ptr("PT45S"), MaxDeliveryCount: to.Ptr(int32(7)), DefaultMessageTimeToLive: to.Ptr("P1D"),
			UserMetadata: to.Ptr("<ours> & theirs"), RequiresDuplicateDetection: to.Ptr(true),
		}
		name := bench.queue(sent)
		found := program.Get(bench.admin.GetQueue(bench, name, nil))
		program.Equal("lock", *found.LockDuration, "PT45S")
		program.Equal("metadata", *found.UserMetadata, "<ours> & theirs")
		found.MaxDeliveryCount = to.Ptr(int32(9))
		updated := program.Get(bench.admin.UpdateQueue(bench, name, found.QueueProperties, nil))
		program.Equal("updated", *updated.MaxDeliveryCount, int32(9))
		program.Get(bench.admin.DeleteQueue(bench, name, nil))
		program.Holds("gone", program.Get(bench.admin.GetQueue(bench, name, nil)) == nil)
	})
	operation("runtime_of_a_queue", func(bench *bench) {
		name := bench.queue()
		bench.send(name, text("a"), text("b"))
		found := program.Get(bench.admin.GetQueueRuntimeProperties(bench, name, nil))
		program.Equal("counts", []int64{found.TotalMessageCount, int64(found.ActiveMessageCount)}, []int64{2, 2})
		program.Holds("times", isRecent(found.CreatedAt, found.UpdatedAt, found.AccessedAt))
	})
	operation("list_queues", func(bench *bench) {
		wanted := map[string]bool{}
		for index := range 5 {
			name := fmt.Sprint(bench.Entity(), index)
			program.Get(bench.admin.CreateQueue(bench, name, nil))
			wanted[name] = true
		}
		for pager := bench.admin.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}); pager.More(); {
			for _, queue := range program.Get(pager.NextPage(bench)).Queues {
				delete(wanted, queue.QueueName)
			}
		}
		program.Equal("not listed", wanted, map[string]bool{})
	})
	operation("list_queues_with_runtime", func(bench *bench) {
		name := bench.queue()
		isThere := false
		for pager := bench.admin.NewListQueuesRuntimePropertiesPager(nil); pager.More(); {
			for _, queue := range program.Get(pager.NextPage(bench)).QueueRuntimeProperties {
				isThere = isThere || queue.QueueName == name
			}
		}
		program.Holds("listed", isThere)
	})
	operation("life_of_a_topic", func(bench *bench) {
		name := bench.topic()
		found := program.Get(bench.admin.GetTopic(bench, name, nil))
		found.UserMetadata = to.Ptr("changed")
		program.Equal("updated", *program.Get(bench.admin.UpdateTopic(bench, name, found.TopicProperties, nil)).UserMetadata, "changed")
		program.Get(bench.admin.DeleteTopic(bench, name, nil))
		program.Holds("gone", program.Get(bench.admin.GetTopic(bench, name, nil)) == nil)
	})
	operation("runtime_of_a_topic", func(bench *bench) {
		name := bench.topic("s")
		found := program.Get(bench.admin.GetTopicRuntimeProperties(bench, name, nil))
		program.Equal("subscriptions", found.SubscriptionCount, int32(1))
		program.Holds("times", isRecent(found.CreatedAt, found.UpdatedAt))
	})
	operation("topic_is_accessed_by_its_first_subscription", func(bench *bench) {
		topic := bench.topic()
		program.Holds("never", program.Get(bench.admin.GetTopicRuntimeProperties(bench, topic, nil)).AccessedAt.IsZero())
		program.Get(bench.admin.CreateSubscription(bench, topic, "s", nil))
		program.Holds("a real time", isRecent(program.Get(bench.admin.GetTopicRuntimeProperties(bench, topic, nil)).AccessedAt))
	})
	operation("list_topics", func(bench *bench) {
		name := bench.topic()
		isThere := false
		for pager := bench.admin.NewListTopicsPager(nil); pager.More(); {
			for _, topic := range program.Get(pager.NextPage(bench)).Topics {
				isThere = isThere || topic.TopicName == name
			}
		}
		program.Holds("listed", isThere)
	})
	operation("life_of_a_subscription", func(bench *bench) {
		topic := bench.topic("s")
		found := program.Get(bench.admin.GetSubscription(bench, topic, "s", nil))
		found.LockDuration = to.Ptr("PT30S")
		updated := program.Get(bench.admin.UpdateSubscription(bench, topic, "s", found.SubscriptionProperties, nil))
		program.Equal("updated", *updated.LockDuration, "PT30S")
		program.Get(bench.admin.DeleteSubscription(bench, topic, "s", nil))
		program.Holds("gone", program.Get(bench.admin.GetSubscription(bench, topic, "s", nil)) == nil)
	})
	operation("runtime_of_a_subscription", func(bench *bench) {
		topic := bench.topic("s")
		bench.send(topic, text("a"))
		found := program.Get(bench.admin.GetSubscriptionRuntimeProperties(bench, topic, "s", nil))
		program.Equal("count", found.ActiveMessageCount, int32(1))
		program.Holds("times", isRecent(found.CreatedAt, found.UpdatedAt))
	})
	operation("unused_subscription_was_accessed", func(bench *bench) {
		found := program.Get(bench.admin.GetSubscriptionRuntimeProperties(bench, bench.topic("s"), "s", nil))
		program.Holds("a real time", isRecent(found.AccessedAt))
	})
	operation("list_subscriptions", func(bench *bench) {
		topic := bench.topic("a", "b", "c")
		var found []string
		options := &admin.ListSubscriptionsOptions{MaxPageSize: 2}
		for pager := bench.admin.NewListSubscriptionsPager(topic, options); pager.More(); {
			for _, each := range program.Get(pager.NextPage(bench)).Subscriptions {
				found = append(found, each.SubscriptionName)
			}
		}
		program.Equal("subscriptions", found, []string{"a", "b", "c"})
	})
	operation("life_of_a_rule", lifeOfARule)
	operation("rules_are_listed_by_name", func(bench *bench) {
		topic := bench.topic("s")
		for _, name := range []string{"z", "a", "m"} {
			program.Get(bench.admin.CreateRule(bench, topic, "s", &admin.CreateRuleOptions{Name: to.Ptr(name)}))
		}
		var found []string
		for pager := bench.admin.NewListRulesPager(topic, "s", nil); pager.More(); {
			for _, rule := range program.Get(pager.NextPage(bench)).Rules {
				found = append(found, rule.Name)
			}
		}
		program.Equal("rules", found, []string{"$Default", "a", "m", "z"})
	})
	operation("namespace_properties", func(bench *bench) {
		found := program.Get(bench.admin.GetNamespaceProperties(bench, nil))
		program.Holds("a name and a time", found.Name != "" && !found.CreatedTime.IsZero())
	})
	operation("authorization_rules", func(bench *bench) {
		rule := admin.AuthorizationRule{
			KeyName: to.Ptr("reader"), AccessRights: []admin.AccessRight{admin.AccessRightSend, admin.AccessRightListen},
		}
		name := bench.queue(admin.QueueProperties{AuthorizationRules: []admin.AuthorizationRule{rule}})
		found := program.Get(bench.admin.GetQueue(bench, name, nil)).AuthorizationRules
		program.Equal("rights", found[0].AccessRights, rule.AccessRights)
		program.Holds("keys", *found[0].PrimaryKey != "" && *found[0].SecondaryKey != "")
	})
	operation("existing_is_told", func(bench *bench) {
		name := bench.queue()
		_, err := bench.admin.CreateQueue(bench, name, nil)
		program.Has(err, "SubCode=40900")
	})
	operation("missing_is_told", func(bench *bench) {
		_, err := bench.admin.DeleteQueue(bench, bench.Entity(), nil)
		program.Has(err, "404")
		_, err = bench.admin.CreateSubscription(bench, bench.Entity(), "s", nil)
		program.Has(err, "404")
	})
	operation("wrong_value_is_told", func(bench *bench) {
		properties := &admin.QueueProperties{LockDuration: to.Ptr("PT6M")}
		_, err := bench.admin.CreateQueue(bench, bench.Entity(), &admin.CreateQueueOptions{Properties: properties})
		program.Has(err, "LockDuration")
	})
	operation("wrong_admin_key_is_told", func(bench *bench) {
		stranger := newAdmin(fmt.Sprintf("Endpoint=%s;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong", program.Value("Endpoint")))
		_, err := stranger.CreateQueue(bench, bench.Entity(), nil)
		program.Has(err, "401")
	})
}

func lifeOfARule(bench *bench) {
	topic := bench.topic("s")
	filter := &admin.CorrelationFilter{ContentType: to.Ptr("c"), ApplicationProperties: map[string]any{"text": "<x> & y", "five": int64(5), "half": 0.5, "yes": true}}
	options := &admin.CreateRuleOptions{Name: to.Ptr("r"), Filter: filter, Action: &admin.SQLAction{Expression: "SET a = 1"}}
	program.Get(bench.admin.CreateRule(bench, topic, "s", options))
	found := program.Get(bench.admin.GetRule(bench, topic, "s", "r", nil))
	program.Equal("filter", found.Filter.(*admin.CorrelationFilter).ApplicationProperties, filter.ApplicationProperties)
	program.Equal("action", found.Action.(*admin.SQLAction).Expression, "SET a = 1")
	properties := found.RuleProperties
	properties.Filter = &admin.SQLFilter{Expression: "a = 1"}
	properties.Action = nil
	updated := program.Get(bench.admin.UpdateRule(bench, topic, "s", properties))
	program.Equal("updated", updated.Filter.(*admin.SQLFilter).Expression, "a = 1")
	program.Get(bench.admin.DeleteRule(bench, topic, "s", "r", nil))
	program.Holds("gone", program.Get(bench.admin.GetRule(bench, topic, "s", "r", nil)) == nil)
}
