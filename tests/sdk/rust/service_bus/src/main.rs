//! The unmodified azure_messaging_servicebus, which speaks HTTP to NAMESPACE.servicebus.windows.net. Names are resolved to
//! the bus, whose certificate has that name too. A queue of the operation's name and a topic with `-topic` behind it and the
//! subscription `s` are there before.

use std::{collections::HashMap, fs, net::ToSocketAddrs, sync::Arc, time::Duration};

use azure_messaging_servicebus::service_bus::{QueueClient, SendMessageOptions, SettableBrokerProperties, TopicClient};
use azure_core::{
    headers::{HeaderName, Headers, CONTENT_TYPE},
    HttpClient,
};
use time::OffsetDateTime;
use trial::{equal, fails, holds, value, variable, Problem, Trial};

const NAMESPACE: &str = "busway";

fn http() -> Result<Arc<dyn HttpClient>, Problem> {
    let authority = reqwest::Certificate::from_pem(&fs::read(variable("BUSWAY_CA_FILE"))?)?;
    let address = variable("BUSWAY_ADDRESS").to_socket_addrs()?.find(|each| each.is_ipv4()).ok_or("no address")?;
    let host = format!("{NAMESPACE}.servicebus.windows.net");
    Ok(Arc::new(reqwest::Client::builder().add_root_certificate(authority).resolve(&host, address).build()?))
}

fn queue(name: &str) -> Result<QueueClient, Problem> {
    Ok(QueueClient::new(http()?, NAMESPACE, name, value("SharedAccessKeyName"), value("SharedAccessKey"))?)
}

fn topic(name: &str) -> Result<TopicClient, Problem> {
    let name = format!("{name}-topic");
    Ok(TopicClient::new(http()?, NAMESPACE, name, value("SharedAccessKeyName"), value("SharedAccessKey"))?)
}

fn with(properties: SettableBrokerProperties) -> Option<SendMessageOptions> {
    Some(SendMessageOptions { broker_properties: Some(properties), ..Default::default() })
}

/// What this SDK gives of other properties is the headers of the answer.
struct Own(Option<String>);

impl From<Headers> for Own {
    fn from(headers: Headers) -> Self {
        Own(headers.get_optional_string(&HeaderName::from_static("color")))
    }
}

struct ContentType(Option<String>);

impl From<Headers> for ContentType {
    fn from(headers: Headers) -> Self {
        ContentType(headers.get_optional_string(&CONTENT_TYPE))
    }
}

const SOON: Option<Duration> = Some(Duration::from_secs(8));

#[tokio::main]
async fn main() {
    let mut trial = Trial::default();
    trial.operation("send_and_receive", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        equal("body", queue.receive_and_delete_message().await?, "hello".to_string())
    });
    trial.operation("peek_lock_and_delete", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let message = queue.peek_lock_message2(SOON).await?;
        equal("body", message.body(), "hello".to_string())?;
        message.delete_message().await?;
        equal("left", queue.peek_lock_message(Some(Duration::from_secs(1))).await?, String::new())
    });
    trial.operation("broker_properties", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let found = queue.peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        equal("facts", (found.delivery_count, found.sequence_number, found.state), (1, 1, "Active".to_string()))?;
        holds("an id, a lock and a life", !found.message_id.is_empty() && !found.lock_token.is_empty() && found.time_to_live > 1e9)
    });
    trial.operation("unlocked_comes_again", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        queue.peek_lock_message2(SOON).await?.unlock_message().await?;
        equal("body", queue.peek_lock_message2(SOON).await?.body(), "hello".to_string())
    });
    trial.operation("renew_lock", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let message = queue.peek_lock_message2(SOON).await?;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            message.renew_message_lock().await?;
        }
        message.delete_message().await?;
        Ok(())
    });
    trial.operation("lost_lock_is_told", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let message = queue.peek_lock_message2(SOON).await?;
        tokio::time::sleep(Duration::from_millis(5500)).await;
        fails("", message.delete_message().await)
    });
    trial.operation("message_with_properties", |name| async move {
        let queue = queue(&name)?;
        let properties = SettableBrokerProperties { message_id: Some("an id".to_string()), ..Default::default() };
        let options = SendMessageOptions { broker_properties: Some(properties), ..Default::default() };
        queue.send_message("hello", Some(options)).await?;
        let found = queue.peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        equal("id", found.message_id, "an id".to_string())
    });
    trial.operation("custom_properties", |name| async move {
        let queue = queue(&name)?;
        let own = HashMap::from([("color".to_string(), "red".to_string())]);
        queue.send_message("hello", Some(SendMessageOptions { custom_properties: Some(own), ..Default::default() })).await?;
        let Own(found) = queue.peek_lock_message2(SOON).await?.custom_properties::<Own>()?;
        holds(&format!("red in {found:?}"), found.is_some_and(|color| color.trim_matches('"') == "red"))
    });
    trial.operation("content_type", |name| async move {
        let queue = queue(&name)?;
        let options = SendMessageOptions { content_type: Some("application/json".to_string()), ..Default::default() };
        queue.send_message("{}", Some(options)).await?;
        let ContentType(found) = queue.peek_lock_message2(SOON).await?.custom_properties::<ContentType>()?;
        equal("content type", found, Some("application/json".to_string()))
    });
    trial.operation("every_settable_property_is_taken", |name| async move {
        let queue = queue(&name)?;
        let text = |value: &str| Some(value.to_string());
        let properties = SettableBrokerProperties {
            correlation_id: text("c"), session_id: text("a session"), message_id: text("an id"), label: text("l"), reply_to: text("r"),
            to: text("t"), reply_to_session_id: text("rs"), partition_key: text("a session"), ..Default::default()
        };
        queue.send_message("hello", with(properties)).await?;
        equal("body", queue.receive_and_delete_message().await?, "hello".to_string())
    });
    trial.operation("time_to_live", |name| async move {
        let queue = queue(&name)?;
        let properties = SettableBrokerProperties { time_to_live: Some(Duration::from_secs(60)), ..Default::default() };
        queue.send_message("hello", with(properties)).await?;
        let found = queue.peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        equal("life", found.time_to_live, 60.0)
    });
    trial.operation("expired_message_does_not_come", |name| async move {
        let queue = queue(&name)?;
        let properties = SettableBrokerProperties { time_to_live: Some(Duration::from_millis(500)), ..Default::default() };
        queue.send_message("old", with(properties)).await?;
        tokio::time::sleep(Duration::from_millis(1000)).await;
        queue.send_message("new", None).await?;
        equal("body", queue.receive_and_delete_message().await?, "new".to_string())
    });
    trial.operation("scheduled_message_comes_in_time", |name| async move {
        let queue = queue(&name)?;
        let at = OffsetDateTime::now_utc() + Duration::from_secs(3);
        let properties = SettableBrokerProperties { scheduled_enqueue_time_utc: Some(at), ..Default::default() };
        queue.send_message("later", with(properties)).await?;
        equal("early", queue.peek_lock_message(Some(Duration::from_secs(1))).await?, String::new())?;
        equal("body", queue.peek_lock_message2(SOON).await?.body(), "later".to_string())
    });
    trial.operation("times_of_a_message", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let found = queue.peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        let now = OffsetDateTime::now_utc();
        let enqueued = found.enqueued_time_utc.ok_or("no time")?;
        holds("enqueued just now", (now - enqueued).whole_seconds().abs() < 60)?;
        holds("locked for a while", found.locked_until_utc > now && found.locked_until_utc < now + Duration::from_secs(10))
    });
    trial.operation("delivery_count_rises", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        queue.peek_lock_message2(SOON).await?.unlock_message().await?;
        let found = queue.peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        equal("count", found.delivery_count, 2)
    });
    trial.operation("lock_ends_and_it_comes_again", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        queue.peek_lock_message2(SOON).await?;
        equal("body", queue.peek_lock_message2(SOON).await?.body(), "hello".to_string())
    });
    trial.operation("locked_message_is_not_given_twice", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("one", None).await?;
        queue.send_message("two", None).await?;
        let (one, two) = (queue.peek_lock_message2(SOON).await?, queue.peek_lock_message2(SOON).await?);
        equal("bodies", (one.body(), two.body()), ("one".to_string(), "two".to_string()))
    });
    trial.operation("deleting_twice_is_told", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let message = queue.peek_lock_message2(SOON).await?;
        message.delete_message().await?;
        fails("", message.delete_message().await)
    });
    trial.operation("unlocking_what_is_gone_is_told", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        let message = queue.peek_lock_message2(SOON).await?;
        message.delete_message().await?;
        fails("", message.unlock_message().await)?;
        fails("", message.renew_message_lock().await)
    });
    trial.operation("sequence_numbers_rise", |name| async move {
        let queue = queue(&name)?;
        for number in 1..=3 {
            queue.send_message("hello", None).await?;
            let message = queue.peek_lock_message2(SOON).await?;
            equal("number", message.broker_properties().ok_or("no properties")?.sequence_number, number)?;
            message.delete_message().await?;
        }
        Ok(())
    });
    trial.operation("receiver_waits_for_a_message", |name| async move {
        let queue = queue(&name)?;
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.peek_lock_message2(SOON).await }
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        queue.send_message("at last", None).await?;
        equal("body", waiting.await??.body(), "at last".to_string())
    });
    trial.operation("dead_letters_by_their_path", |name| async move {
        let dead = queue(&format!("{name}/$DeadLetterQueue"))?;
        let queue = queue(&name)?;
        queue.send_message("bad", None).await?;
        for _ in 0..10 {
            queue.peek_lock_message2(SOON).await?.unlock_message().await?;
        }
        equal("body", dead.peek_lock_message2(SOON).await?.body(), "bad".to_string())
    });
    trial.operation("status_of_a_message_and_of_none", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("hello", None).await?;
        equal("with one", u16::from(*queue.peek_lock_message2(SOON).await?.status()), 201)?;
        equal("without", u16::from(*queue.peek_lock_message2(Some(Duration::from_secs(1))).await?.status()), 204)
    });
    trial.operation("empty_body", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("", None).await?;
        equal("body", queue.peek_lock_message2(SOON).await?.body(), String::new())
    });
    trial.operation("body_beyond_ascii", |name| async move {
        let queue = queue(&name)?;
        queue.send_message("grüße, 世界", None).await?;
        equal("body", queue.receive_and_delete_message().await?, "grüße, 世界".to_string())
    });
    trial.operation("large_message", |name| async move {
        let (queue, body) = (queue(&name)?, "x".repeat(200_000));
        queue.send_message(&body, None).await?;
        holds("the same text", queue.receive_and_delete_message().await? == body)
    });
    trial.operation("too_large_message_is_told", |name| async move {
        fails("", queue(&name)?.send_message(&"x".repeat(1_200_000), None).await)
    });
    trial.operation("several_at_once", |name| async move {
        let queue = queue(&name)?;
        let sending: Vec<_> = (0..20).map(|number| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.send_message(&number.to_string(), None).await })
        }).collect();
        for each in sending {
            each.await??;
        }
        for _ in 0..20 {
            holds("one more", !queue.receive_and_delete_message().await?.is_empty())?;
        }
        Ok(())
    });
    trial.operation("nothing_to_receive", |name| async move {
        equal("body", queue(&name)?.peek_lock_message(Some(Duration::from_secs(1))).await?, String::new())
    });
    trial.operation("order", |name| async move {
        let queue = queue(&name)?;
        for body in ["0", "1", "2"] {
            queue.send_message(body, None).await?;
        }
        for body in ["0", "1", "2"] {
            equal("body", queue.receive_and_delete_message().await?, body.to_string())?;
        }
        Ok(())
    });
    trial.operation("topic_and_subscription", |name| async move {
        let topic = topic(&name)?;
        topic.topic_sender().send_message("news", None).await?;
        equal("body", topic.subscription_receiver("s").receive_and_delete_message().await?, "news".to_string())
    });
    trial.operation("subscription_peek_lock", |name| async move {
        let topic = topic(&name)?;
        topic.topic_sender().send_message("news", None).await?;
        let message = topic.subscription_receiver("s").peek_lock_message2(SOON).await?;
        equal("body", message.body(), "news".to_string())?;
        message.delete_message().await?;
        Ok(())
    });
    trial.operation("subscription_unlock_and_renew", |name| async move {
        let topic = topic(&name)?;
        topic.topic_sender().send_message("news", None).await?;
        let receiver = topic.subscription_receiver("s");
        let message = receiver.peek_lock_message2(SOON).await?;
        message.renew_message_lock().await?;
        message.unlock_message().await?;
        equal("body", receiver.peek_lock_message2(SOON).await?.body(), "news".to_string())
    });
    trial.operation("nothing_in_a_subscription", |name| async move {
        equal("body", topic(&name)?.subscription_receiver("s").peek_lock_message(Some(Duration::from_secs(1))).await?, String::new())
    });
    trial.operation("topic_message_with_properties", |name| async move {
        let topic = topic(&name)?;
        let properties = SettableBrokerProperties { message_id: Some("an id".to_string()), ..Default::default() };
        topic.topic_sender().send_message("news", with(properties)).await?;
        let found = topic.subscription_receiver("s").peek_lock_message2(SOON).await?.broker_properties().ok_or("no properties")?;
        equal("id", found.message_id, "an id".to_string())
    });
    trial.operation("missing_subscription_is_told", |name| async move {
        fails("", topic(&name)?.subscription_receiver("missing").receive_and_delete_message().await)
    });
    trial.operation("missing_topic_is_told", |name| async move {
        fails("", topic(&format!("{name}-missing"))?.topic_sender().send_message("x", None).await)
    });
    trial.operation("missing_queue_is_told", |name| async move {
        fails("", queue(&format!("{name}-missing"))?.send_message("x", None).await)
    });
    trial.operation("wrong_key_is_told", |name| async move {
        let queue = QueueClient::new(http()?, NAMESPACE, name, value("SharedAccessKeyName"), "wrong".to_string())?;
        fails("", queue.send_message("x", None).await)
    });
    trial.operation("receiving_with_a_wrong_key_is_told", |name| async move {
        let queue = QueueClient::new(http()?, NAMESPACE, name, value("SharedAccessKeyName"), "wrong".to_string())?;
        fails("", queue.receive_and_delete_message().await)
    });
    trial.operation("unknown_key_name_is_told", |name| async move {
        let queue = QueueClient::new(http()?, NAMESPACE, name, "nobody".to_string(), value("SharedAccessKey"))?;
        fails("", queue.send_message("x", None).await)
    });
    trial.run().await;
}
