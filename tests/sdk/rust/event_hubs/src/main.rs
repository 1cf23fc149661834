//! The unmodified azure_messaging_eventhubs. Hubs have two partitions and are there before. This SDK knows no emulator's switch
//! and always speaks TLS.

use std::{sync::Arc, time::SystemTime};

use azure_core::time::Duration;
use azure_messaging_eventhubs::{
    models::{AmqpMessage, AmqpTransport, EventData, ReceivedEventData, StartPositions},
    BufferedProducerClient, ConsumerClient, EnqueueEventOptions, EventDataBatchOptions, EventProcessor, InMemoryCheckpointStore,
    OpenReceiverOptions, ProcessorStrategy, ProducerClient, SendEventOptions, StartLocation, StartPosition,
};
use trial::{connection_string, equal, fails, holds, numbered, value, variable, Outcome, Problem, Trial};
use futures::StreamExt;

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

async fn consumer_of(hub: &str, group: &str) -> Result<ConsumerClient, Problem> {
    let builder = ConsumerClient::builder().with_custom_endpoint(endpoint()).with_transport(transport());
    let builder = builder.with_consumer_group(group.to_string());
    Ok(builder.open_with_connection_string(&connection_string(), Some(hub)).await?)
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

fn publishing(trial: &mut Trial) {
    trial.operation("publish_and_read", |hub| async move {
        let producer = producer(&hub).await?;
        producer.send_event("hello", into_partition("0")).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        equal("body", bodies(&found), vec!["hello".to_string()])?;
        equal("number", found[0].sequence_number(), Some(0))?;
        holds("an offset and a time", found[0].offset().is_some() && found[0].enqueued_time().is_some())
    });
    trial.operation("every_property_comes_back", |hub| async move {
        let sent = EventData::builder().with_body("body").with_content_type("text/plain".to_string()).with_correlation_id("c")
            .with_message_id("id").add_property("color".to_string(), "red").add_property("count".to_string(), 7i64).build();
        producer(&hub).await?.send_event(sent.clone(), into_partition("0")).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        let event = found[0].event_data();
        equal("properties", event.properties(), sent.properties())?;
        equal("content type", event.content_type(), Some("text/plain"))?;
        equal("ids", (event.message_id(), event.correlation_id()), (sent.message_id(), sent.correlation_id()))
    });
    trial.operation("plain_amqp_message", |hub| async move {
        let producer = producer(&hub).await?;
        producer.send_message(AmqpMessage::builder().with_body(vec![b"a value".to_vec()]).build(), None).await?;
        producer.close().await?;
        Ok(())
    });
    trial.operation("anywhere", |hub| async move {
        let producer = producer(&hub).await?;
        for body in numbered(4) {
            producer.send_event(body, None).await?;
        }
        Ok(())
    });
    trial.operation("by_key", |hub| async move {
        let producer = producer(&hub).await?;
        let options = EventDataBatchOptions { partition_key: Some("a key".to_string()), ..Default::default() };
        let batch = producer.create_batch(Some(options)).await?;
        batch.try_add_event_data("one", None)?;
        batch.try_add_event_data("two", None)?;
        producer.send_batch(batch, None).await?;
        let consumer = consumer(&hub).await?;
        let mut found = Vec::new();
        for partition in ["0", "1"] {
            let options = OpenReceiverOptions { receive_timeout: Some(Duration::seconds(1)), ..from(StartLocation::Earliest, false) };
            found.extend(read_by(&consumer, partition, 2, options).await.unwrap_or_default());
        }
        equal("bodies", bodies(&found), vec!["one".to_string(), "two".to_string()])?;
        equal("key", found[0].partition_key().clone(), Some("a key".to_string()))
    });
    trial.operation("batch_of_many", |hub| async move {
        numbers(&hub, 500).await?;
        equal("bodies", bodies(&read(&hub, 500, from(StartLocation::Earliest, false)).await?), numbered(500))
    });
    trial.operation("batch_knows_its_bound", |hub| async move {
        let producer = producer(&hub).await?;
        let batch = producer.create_batch(None).await?;
        holds("it fits", batch.try_add_event_data(vec![0u8; 400_000], None)?)?;
        holds("it does not", !batch.try_add_event_data(vec![0u8; 900_000], None)?)?;
        producer.send_batch(batch, None).await?;
        Ok(())
    });
    trial.operation("batch_with_a_bound_of_its_own", |hub| async move {
        let producer = producer(&hub).await?;
        let options = EventDataBatchOptions { max_size_in_bytes: Some(1000), ..Default::default() };
        let batch = producer.create_batch(Some(options)).await?;
        holds("it does not fit", !batch.try_add_event_data(vec![0u8; 2000], None)?)
    });
    trial.operation("large_event", |hub| async move {
        producer(&hub).await?.send_event(vec![7u8; 500_000], into_partition("0")).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        equal("length", found[0].event_data().body().map(|body| body.len()), Some(500_000))
    });
    trial.operation("what_is_read_can_be_published_again", |hub| async move {
        numbers(&hub, 1).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        let producer = producer(&hub).await?;
        producer.send_event(found[0].event_data().clone(), into_partition("0")).await?;
        producer.send_message(found[0].raw_amqp_message().clone(), into_partition("0").map(Into::into)).await?;
        equal("count", read(&hub, 3, from(StartLocation::Earliest, false)).await?.len(), 3)
    });
    trial.operation("buffered_producer", |hub| async move {
        let builder = BufferedProducerClient::builder().with_custom_endpoint(endpoint()).with_max_wait_time(Duration::milliseconds(200));
        let builder = builder.with_on_send_failed(|_| async {}).with_on_send_succeeded(|_| async {});
        let producer = builder.open_with_connection_string(&connection_string(), Some(&hub)).await?;
        for body in numbered(20) {
            let options = EnqueueEventOptions { partition_id: Some("0".to_string()), ..Default::default() };
            producer.enqueue_event(body, Some(options)).await?;
        }
        producer.flush().await?;
        producer.close().await?;
        equal("bodies", bodies(&read(&hub, 20, from(StartLocation::Earliest, false)).await?), numbered(20))
    });
    trial.operation("missing_hub_is_told", |hub| async move {
        let result = match producer(&format!("{hub}-missing")).await {
            Ok(producer) => producer.send_event("x", None).await.map_err(Problem::from),
            Err(problem) => Err(problem),
        };
        fails("could not be found", result)
    });
    trial.operation("missing_partition_is_told", |hub| async move {
        let producer = producer(&hub).await?;
        fails("The specified partition is invalid for an EventHub partition sender or receiver", producer.send_event("x", into_partition("9")).await)
    });
    trial.operation("wrong_key_is_told", |hub| async move {
        let string = connection_string().replace(&value("SharedAccessKey"), "wrong");
        let result = match producer_with(&string, &hub).await {
            Ok(producer) => producer.send_event("x", None).await.map_err(Problem::from),
            Err(problem) => Err(problem),
        };
        fails("", result)
    });
}

fn questions(trial: &mut Trial) {
    trial.operation("properties_of_a_hub", |hub| async move {
        let found = producer(&hub).await?.get_eventhub_properties().await?;
        equal("hub", (found.name, found.partition_ids), (hub, vec!["0".to_string(), "1".to_string()]))
    });
    trial.operation("properties_of_a_hub_by_a_consumer", |hub| async move {
        equal("name", consumer(&hub).await?.get_eventhub_properties().await?.name, hub)
    });
    trial.operation("properties_of_a_partition", |hub| async move {
        numbers(&hub, 3).await?;
        let found = producer(&hub).await?.get_partition_properties("0").await?;
        equal("numbers", (found.beginning_sequence_number, found.last_enqueued_sequence_number, found.is_empty), (0, 2, false))
    });
    trial.operation("properties_of_an_empty_partition", |hub| async move {
        let found = consumer(&hub).await?.get_partition_properties("1").await?;
        equal("facts", (found.last_enqueued_sequence_number, found.is_empty), (-1, true))
    });
}

fn reading(trial: &mut Trial) {
    trial.operation("from_the_start", |hub| reads(hub, from(StartLocation::Earliest, false), &["0", "1", "2", "3"]));
    trial.operation("from_a_number", |hub| reads(hub, from(StartLocation::SequenceNumber(1), false), &["2", "3"]));
    trial.operation("from_a_number_inclusive", |hub| reads(hub, from(StartLocation::SequenceNumber(1), true), &["1", "2", "3"]));
    trial.operation("from_an_offset", |hub| reads(hub, from(StartLocation::Offset("1".to_string()), false), &["2", "3"]));
    trial.operation("from_a_time", |hub| {
        let at = SystemTime::now() - std::time::Duration::from_secs(60);
        reads(hub, from(StartLocation::EnqueuedTime(at), false), &["0", "1", "2", "3"])
    });
    trial.operation("from_the_end", |hub| async move {
        numbers(&hub, 2).await?;
        let consumer = consumer(&hub).await?;
        let receiver = consumer.open_receiver_on_partition("0".to_string(), Some(from(StartLocation::Latest, false))).await?;
        let producer = producer(&hub).await?;
        let mut stream = Box::pin(receiver.stream_events());
        // It attaches when it is first asked, so events are published until one comes.
        let publishing = async {
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                producer.send_event("new", into_partition("0")).await?;
            }
            #[allow(unreachable_code)]
            Ok::<(), Problem>(())
        };
        let event = tokio::select! {
            event = stream.next() => event.ok_or("nothing came")??,
            problem = publishing => return problem,
        };
        equal("body", bodies(&[event]), vec!["new".to_string()])
    });
    trial.operation("with_prefetch", |hub| async move {
        numbers(&hub, 1000).await?;
        let options = OpenReceiverOptions { prefetch: Some(100), ..from(StartLocation::Earliest, false) };
        equal("bodies", bodies(&read(&hub, 1000, options).await?), numbered(1000))
    });
    trial.operation("another_consumer_group", |hub| async move {
        numbers(&hub, 2).await?;
        let consumer = consumer_of(&hub, "second").await?;
        equal("bodies", bodies(&read_by(&consumer, "0", 2, from(StartLocation::Earliest, false)).await?), numbered(2))
    });
    trial.operation("two_readers_of_a_group", |hub| async move {
        numbers(&hub, 2).await?;
        let (one, two) = (consumer(&hub).await?, consumer(&hub).await?);
        let both = futures::join!(
            read_by(&one, "0", 2, from(StartLocation::Earliest, false)),
            read_by(&two, "0", 2, from(StartLocation::Earliest, false))
        );
        equal("bodies", (bodies(&both.0?), bodies(&both.1?)), (numbered(2), numbered(2)))
    });
    trial.operation("higher_owner_takes_over", |hub| async move {
        numbers(&hub, 1).await?;
        let consumer = consumer(&hub).await?;
        let level = |owner| OpenReceiverOptions { owner_level: Some(owner), ..from(StartLocation::Earliest, false) };
        let low = consumer.open_receiver_on_partition("0".to_string(), Some(level(1))).await?;
        let mut stream = Box::pin(low.stream_events());
        stream.next().await.ok_or("nothing came")??;
        read_by(&consumer, "0", 1, level(2)).await?;
        fails("ConsumerDisconnected", stream.next().await.ok_or("it ended")?)
    });
    trial.operation("missing_consumer_group_is_told", |hub| async move {
        numbers(&hub, 1).await?;
        let consumer = consumer_of(&hub, "missing").await?;
        fails("", read_by(&consumer, "0", 1, from(StartLocation::Earliest, false)).await)
    });
    trial.operation("processor", |hub| async move {
        numbers(&hub, 3).await?;
        let store = Arc::new(InMemoryCheckpointStore::new());
        equal("bodies", process(&hub, store, 3).await?, numbered(3))
    });
    trial.operation("processor_goes_on_from_its_checkpoint", |hub| async move {
        let store = Arc::new(InMemoryCheckpointStore::new());
        numbers(&hub, 2).await?;
        process(&hub, store.clone(), 2).await?;
        producer(&hub).await?.send_event("later", into_partition("0")).await?;
        equal("bodies", process(&hub, store, 1).await?, vec!["later".to_string()])
    });
}

/// So many events of partition 0, each of them a checkpoint.
async fn process(hub: &str, store: Arc<InMemoryCheckpointStore>, count: usize) -> Result<Vec<String>, Problem> {
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let builder = EventProcessor::builder().with_load_balancing_strategy(ProcessorStrategy::Greedy)
        .with_update_interval(Duration::milliseconds(200)).with_partition_expiration_duration(Duration::seconds(1))
        .with_start_positions(StartPositions { default: earliest, ..Default::default() });
    let processor = builder.build(consumer(hub).await?, store).await?;
    let running = tokio::spawn({
        let processor = processor.clone();
        async move { processor.run().await }
    });
    let mut found = Vec::new();
    while found.len() < count {
        let partition = processor.next_partition_client().await?;
        if partition.get_partition_id() != "0" {
            continue;
        }
        let mut stream = Box::pin(partition.stream_events());
        while found.len() < count {
            let event = stream.next().await.ok_or("the stream ended")??;
            partition.update_checkpoint(&event).await?;
            found.extend(bodies(&[event]));
        }
    }
    processor.shutdown().await?;
    running.abort();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await; // until nobody owns the partitions
    Ok(found)
}

#[tokio::main]
async fn main() {
    let mut trial = Trial::default();
    publishing(&mut trial);
    questions(&mut trial);
    reading(&mut trial);
    trial.run().await;
}
