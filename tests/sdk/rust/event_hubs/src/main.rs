//! The unmodified azure_messaging_eventhubs. Hubs have two partitions and are there before. This SDK knows no emulator's switch
//! and always speaks TLS.

mod processing;
mod publishing;
mod reading;

use azure_core::time::Duration;
use azure_messaging_eventhubs::{
    models::{AmqpTransport, ReceivedEventData},
    ConsumerClient, EventDataBatchOptions, OpenReceiverOptions, ProducerClient, SendEventOptions, StartLocation, StartPosition,
};
use futures::StreamExt;
use trial::{connection_string, equal, holds, numbered, value, variable, Outcome, Problem, Trial};

fn endpoint() -> String {
    let address = variable("BUSWAY_ADDRESS");
    if address.is_empty() {
        return value("Endpoint").replace("sb:", "amqps:");
    }
    format!("amqps://{address}")
}

fn transport() -> AmqpTransport {
    if variable("BUSWAY_MODE") == "websocket" {
        return AmqpTransport::WebSocket;
    }
    AmqpTransport::Tcp
}

async fn producer_with(string: &str, hub: &str) -> Result<ProducerClient, Problem> {
    let builder = ProducerClient::builder().with_custom_endpoint(endpoint()).with_transport(transport());
    Ok(builder.open_with_connection_string(string, Some(hub)).await?)
}

async fn producer(hub: &str) -> Result<ProducerClient, Problem> {
    producer_with(&connection_string(), hub).await
}

async fn consumer_with(string: &str, hub: &str, group: &str) -> Result<ConsumerClient, Problem> {
    let builder = ConsumerClient::builder().with_custom_endpoint(endpoint()).with_transport(transport());
    Ok(builder.with_consumer_group(group.to_string()).open_with_connection_string(string, Some(hub)).await?)
}

async fn consumer_of(hub: &str, group: &str) -> Result<ConsumerClient, Problem> {
    consumer_with(&connection_string(), hub, group).await
}

async fn consumer(hub: &str) -> Result<ConsumerClient, Problem> {
    consumer_of(hub, "$Default").await
}

fn into_partition(id: &str) -> Option<SendEventOptions> {
    Some(SendEventOptions { partition_id: Some(id.to_string()) })
}

/// So many events with their numbers as bodies, in partition 0.
async fn numbers(hub: &str, count: usize) -> Outcome {
    let producer = producer(hub).await?;
    let options = EventDataBatchOptions { partition_id: Some("0".to_string()), ..Default::default() };
    let batch = producer.create_batch(Some(options)).await?;
    for body in numbered(count) {
        holds("it fits", batch.try_add_event_data(body, None)?)?;
    }
    producer.send_batch(batch, None).await?;
    producer.close().await?;
    Ok(())
}

fn from(location: StartLocation, inclusive: bool) -> OpenReceiverOptions {
    OpenReceiverOptions {
        start_position: Some(StartPosition { location, inclusive }),
        receive_timeout: Some(Duration::seconds(10)),
        ..Default::default()
    }
}

fn level(owner: i64) -> OpenReceiverOptions {
    OpenReceiverOptions { owner_level: Some(owner), ..from(StartLocation::Earliest, false) }
}

/// Exactly so many.
async fn read_by(consumer: &ConsumerClient, partition: &str, count: usize, options: OpenReceiverOptions) -> Result<Vec<ReceivedEventData>, Problem> {
    let receiver = consumer.open_receiver_on_partition(partition.to_string(), Some(options)).await?;
    let mut found = Vec::new();
    {
        let mut stream = Box::pin(receiver.stream_events());
        while found.len() < count {
            match stream.next().await {
                Some(event) => found.push(event?),
                None => return Err(format!("only {} of {count} events came", found.len()).into()),
            }
        }
    }
    receiver.close().await?;
    Ok(found)
}

async fn read(hub: &str, count: usize, options: OpenReceiverOptions) -> Result<Vec<ReceivedEventData>, Problem> {
    let consumer = consumer(hub).await?;
    let found = read_by(&consumer, "0", count, options).await?;
    consumer.close().await?;
    Ok(found)
}

fn bodies(events: &[ReceivedEventData]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8_lossy(event.event_data().body().unwrap_or_default()).to_string()).collect()
}

async fn reads(hub: String, options: OpenReceiverOptions, wanted: &[&str]) -> Outcome {
    numbers(&hub, 4).await?;
    equal("bodies", bodies(&read(&hub, wanted.len(), options).await?), wanted.iter().map(|body| body.to_string()).collect())
}

// One thread: fe2o3-amqp 0.16 sends a transfer before it notes that an outcome is awaited. With several threads an outcome that
// comes at once, as from a bus on the same machine, is now and then lost, and the send never ends.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut trial = Trial::default();
    publishing::operations(&mut trial);
    reading::operations(&mut trial);
    processing::operations(&mut trial);
    trial.run().await;
}
