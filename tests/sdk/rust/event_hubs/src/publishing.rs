//! Publishing, alone, in batches and through a buffer; and what is refused.

use std::sync::{Arc, Mutex};

use azure_core::time::Duration;
use azure_core_amqp::{message::AmqpAnnotations, AmqpList, AmqpSymbol};
use azure_messaging_eventhubs::{
    models::{AmqpMessage, AmqpSimpleValue, AmqpValue, EventData},
    BufferedProducerClient, EnqueueEventOptions, EventDataBatchOptions, OpenReceiverOptions, ProducerClient, StartLocation,
};
use trial::{connection_string, equal, fails, holds, numbered, value, Outcome, Problem, Trial};

use crate::{bodies, consumer, endpoint, from, into_partition, numbers, producer, producer_with, read, read_by, transport};

pub fn operations(trial: &mut Trial) {
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
    trial.operation("message_id_of_each_type", |hub| async move {
        let sent = [EventData::builder().with_message_id(7u64), EventData::builder().with_message_id(vec![1u8, 2])];
        let sent: Vec<EventData> = sent.into_iter().map(|each| each.with_body("x").build()).collect();
        let producer = producer(&hub).await?;
        for event in &sent {
            producer.send_event(event.clone(), into_partition("0")).await?;
        }
        let found = read(&hub, sent.len(), from(StartLocation::Earliest, false)).await?;
        let ids = |events: Vec<&EventData>| events.iter().map(|event| event.message_id().cloned()).collect::<Vec<_>>();
        equal("ids", ids(found.iter().map(|event| event.event_data()).collect()), ids(sent.iter().collect()))
    });
    trial.operation("property_of_each_type", |hub| async move {
        let values: Vec<AmqpSimpleValue> = vec![true.into(), 7i32.into(), 8i64.into(), 9u64.into(), 0.5f64.into(), 'x'.into(), "text".into()];
        let mut builder = EventData::builder().with_body("x");
        for (number, value) in values.into_iter().enumerate() {
            builder = builder.add_property(number.to_string(), value);
        }
        let sent = builder.build();
        producer(&hub).await?.send_event(sent.clone(), into_partition("0")).await?;
        equal("properties", read(&hub, 1, from(StartLocation::Earliest, false)).await?[0].event_data().properties(), sent.properties())
    });
    trial.operation("value_body", |hub| comes_back(hub, AmqpMessage::builder().with_body(AmqpValue::from("a value")).build()));
    trial.operation("sequence_body", |hub| {
        let lists = vec![AmqpList(vec![AmqpValue::from(1i32), AmqpValue::from("a")]), AmqpList(vec![AmqpValue::from("b")])];
        comes_back(hub, AmqpMessage::builder().with_body(lists).build())
    });
    trial.operation("several_data_sections_and_a_footer", |hub| {
        let footer = AmqpAnnotations::from(vec![(AmqpSymbol::from("sum"), 7i64)]);
        comes_back(hub, AmqpMessage::builder().with_body(vec![b"a".to_vec(), b"b".to_vec()]).with_footer(footer).build())
    });
    trial.operation("annotation_of_the_sender", |hub| async move {
        let own = AmqpAnnotations::from(vec![(AmqpSymbol::from("x-own"), "mine")]);
        let sent = AmqpMessage::builder().with_body(b"x".to_vec()).with_message_annotations(own).build();
        producer(&hub).await?.send_message(sent, into_partition("0").map(Into::into)).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        equal("annotation", found[0].system_properties().get("x-own").cloned(), Some(AmqpValue::from("mine")))
    });
    trial.operation("batch_of_amqp_messages", |hub| async move {
        let producer = producer(&hub).await?;
        let options = EventDataBatchOptions { partition_id: Some("0".to_string()), ..Default::default() };
        let batch = producer.create_batch(Some(options)).await?;
        holds("it is empty", batch.is_empty())?;
        for body in numbered(3) {
            let message = AmqpMessage::builder().with_body(body.into_bytes()).build();
            holds("it fits", batch.try_add_amqp_message(message, None)?)?;
        }
        equal("length", batch.len(), 3)?;
        producer.send_batch(batch, None).await?;
        equal("bodies", bodies(&read(&hub, 3, from(StartLocation::Earliest, false)).await?), numbered(3))
    });
    trial.operation("empty_body", |hub| async move {
        producer(&hub).await?.send_event(Vec::<u8>::new(), into_partition("0")).await?;
        let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
        equal("body", found[0].event_data().body().unwrap_or_default(), &[][..])
    });
    trial.operation("too_large_event_is_told", |hub| async move {
        let producer = producer(&hub).await?;
        let sending = producer.send_event(vec![0u8; 1_100_000], into_partition("0"));
        fails("", tokio::time::timeout(std::time::Duration::from_secs(10), sending).await?)
    });
    trial.operation("hub_in_the_connection_string", |hub| async move {
        let string = format!("{};EntityPath={hub}", connection_string());
        let producer = ProducerClient::builder().with_custom_endpoint(endpoint()).with_transport(transport())
            .with_application_id("trial".to_string()).open_with_connection_string(&string, None).await?;
        producer.send_event("x", into_partition("0")).await?;
        equal("bodies", bodies(&read(&hub, 1, from(StartLocation::Earliest, false)).await?), vec!["x".to_string()])
    });
    trial.operation("many_at_once", |hub| async move {
        let producer = producer(&hub).await?;
        let sending = numbered(50).into_iter().map(|body| producer.send_event(body, into_partition("0")));
        for result in futures::future::join_all(sending).await {
            result?;
        }
        equal("count", read(&hub, 50, from(StartLocation::Earliest, false)).await?.len(), 50)
    });
    trial.operation("buffered_producer_by_key", |hub| async move {
        let succeeded = Arc::new(Mutex::new(0));
        let count = succeeded.clone();
        let builder = BufferedProducerClient::builder().with_custom_endpoint(endpoint()).with_max_wait_time(Duration::milliseconds(200));
        let builder = builder.with_on_send_failed(|_| async {}).with_on_send_succeeded(move |sent| {
            *count.lock().unwrap() += sent.events.len();
            async {}
        });
        let buffered = builder.open_with_connection_string(&connection_string(), Some(&hub)).await?;
        let options = EnqueueEventOptions { partition_key: Some("a key".to_string()), ..Default::default() };
        buffered.enqueue_events(numbered(20), Some(options)).await?;
        buffered.flush().await?;
        buffered.close().await?;
        equal("events that were told of", *succeeded.lock().unwrap(), 20)?;
        let producer = producer(&hub).await?;
        let mut last = Vec::new();
        for partition in ["0", "1"] {
            last.push(producer.get_partition_properties(partition).await?.last_enqueued_sequence_number);
        }
        last.sort();
        equal("last numbers", last, vec![-1, 19])
    });
}

/// The same body and footer.
async fn comes_back(hub: String, sent: AmqpMessage) -> Outcome {
    producer(&hub).await?.send_message(sent.clone(), into_partition("0").map(Into::into)).await?;
    let found = read(&hub, 1, from(StartLocation::Earliest, false)).await?;
    let message = found[0].raw_amqp_message();
    holds("the same body", message.body == sent.body)?;
    equal("footer", message.footer.clone(), sent.footer)
}
