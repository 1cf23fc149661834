//! The unmodified azure_messaging_servicebus, which speaks HTTP to NAMESPACE.servicebus.windows.net. Names are resolved to
//! the bus, whose certificate has that name too. A queue of the operation's name and a topic with `-topic` behind it and the
//! subscription `s` are there before.

use std::{fs, net::ToSocketAddrs, sync::Arc, time::Duration};

use azure_messaging_servicebus::service_bus::{QueueClient, SendMessageOptions, SettableBrokerProperties, TopicClient};
use azure_core::HttpClient;
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
    trial.operation("missing_queue_is_told", |name| async move {
        fails("", queue(&format!("{name}-missing"))?.send_message("x", None).await)
    });
    trial.operation("wrong_key_is_told", |name| async move {
        let queue = QueueClient::new(http()?, NAMESPACE, name, value("SharedAccessKeyName"), "wrong".to_string())?;
        fails("", queue.send_message("x", None).await)
    });
    trial.run().await;
}
