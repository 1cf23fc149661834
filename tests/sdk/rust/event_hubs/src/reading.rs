//! Reading, from every position and with owners; and what a hub says about itself.

use std::time::SystemTime;

use azure_core::time::Duration;
use azure_messaging_eventhubs::{OpenReceiverOptions, StartLocation};
use futures::StreamExt;
use trial::{connection_string, equal, fails, numbered, Problem, Trial};

use crate::{bodies, consumer, consumer_of, consumer_with, from, into_partition, level, numbers, producer, read, read_by, reads};

pub fn operations(trial: &mut Trial) {
    questions(trial);
    positions(trial);
    readers(trial);
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

fn positions(trial: &mut Trial) {
    trial.operation("from_the_start", |hub| reads(hub, from(StartLocation::Earliest, false), &["0", "1", "2", "3"]));
    trial.operation("from_a_number", |hub| reads(hub, from(StartLocation::SequenceNumber(1), false), &["2", "3"]));
    trial.operation("from_a_number_inclusive", |hub| reads(hub, from(StartLocation::SequenceNumber(1), true), &["1", "2", "3"]));
    trial.operation("from_an_offset", |hub| reads(hub, from(StartLocation::Offset("1".to_string()), false), &["2", "3"]));
    trial.operation("from_an_offset_inclusive", |hub| reads(hub, from(StartLocation::Offset("1".to_string()), true), &["1", "2", "3"]));
    trial.operation("from_the_time_of_an_event", |hub| async move {
        numbers(&hub, 1).await?;
        let at = read(&hub, 1, from(StartLocation::Earliest, false)).await?[0].enqueued_time().ok_or("no time")?;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        producer(&hub).await?.send_event("later", into_partition("0")).await?;
        equal("bodies", bodies(&read(&hub, 1, from(StartLocation::EnqueuedTime(at), false)).await?), vec!["later".to_string()])
    });
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
}

fn readers(trial: &mut Trial) {
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
        // Two clients: of a partition one client has one link, which both of its receivers would share.
        let (one, two) = (consumer(&hub).await?, consumer(&hub).await?);
        let low = one.open_receiver_on_partition("0".to_string(), Some(level(1))).await?;
        let mut stream = Box::pin(low.stream_events());
        stream.next().await.ok_or("nothing came")??;
        read_by(&two, "0", 1, level(2)).await?;
        fails("LinkStolen", stream.next().await.ok_or("it ended")?)
    });
    trial.operation("missing_consumer_group_is_told", |hub| async move {
        numbers(&hub, 1).await?;
        let consumer = consumer_of(&hub, "missing").await?;
        fails("", read_by(&consumer, "0", 1, from(StartLocation::Earliest, false)).await)
    });
    trial.operation("lower_owner_is_refused", |hub| async move {
        numbers(&hub, 1).await?;
        let (one, two) = (consumer(&hub).await?, consumer(&hub).await?);
        let high = one.open_receiver_on_partition("0".to_string(), Some(level(2))).await?;
        let mut stream = Box::pin(high.stream_events());
        stream.next().await.ok_or("nothing came")??;
        fails("LinkStolen", read_by(&two, "0", 1, level(1)).await)
    });
    trial.operation("reader_without_a_level_beside_an_owner_is_refused", |hub| async move {
        numbers(&hub, 1).await?;
        let (one, two) = (consumer(&hub).await?, consumer(&hub).await?);
        let owner = one.open_receiver_on_partition("0".to_string(), Some(level(1))).await?;
        let mut stream = Box::pin(owner.stream_events());
        stream.next().await.ok_or("nothing came")??;
        fails("", read_by(&two, "0", 1, from(StartLocation::Earliest, false)).await)
    });
    trial.operation("both_partitions_at_once", |hub| async move {
        let producer = producer(&hub).await?;
        for partition in ["0", "1"] {
            producer.send_event(partition, into_partition(partition)).await?;
        }
        let consumer = consumer(&hub).await?;
        let both = futures::join!(
            read_by(&consumer, "0", 1, from(StartLocation::Earliest, false)),
            read_by(&consumer, "1", 1, from(StartLocation::Earliest, false))
        );
        equal("bodies", (bodies(&both.0?), bodies(&both.1?)), (vec!["0".to_string()], vec!["1".to_string()]))
    });
    trial.operation("events_come_while_reading", |hub| async move {
        let (producer, consumer) = (producer(&hub).await?, consumer(&hub).await?);
        let receiver = consumer.open_receiver_on_partition("0".to_string(), Some(from(StartLocation::Earliest, false))).await?;
        let mut stream = Box::pin(receiver.stream_events());
        for body in numbered(5) {
            producer.send_event(body.clone(), into_partition("0")).await?;
            equal("body", bodies(&[stream.next().await.ok_or("nothing came")??]), vec![body])?;
        }
        Ok(())
    });
    trial.operation("reader_is_closed_and_opened_again", |hub| async move {
        numbers(&hub, 3).await?;
        let consumer = consumer(&hub).await?;
        for _ in 0..3 {
            equal("bodies", bodies(&read_by(&consumer, "0", 3, from(StartLocation::Earliest, false)).await?), numbered(3))?;
        }
        Ok(())
    });
    trial.operation("nothing_to_read_is_a_time_out", |hub| async move {
        let options = OpenReceiverOptions { receive_timeout: Some(Duration::seconds(1)), ..from(StartLocation::Earliest, false) };
        fails("timed out", read(&hub, 1, options).await)
    });
    trial.operation("missing_partition_of_a_reader_is_told", |hub| async move {
        let consumer = consumer(&hub).await?;
        fails("The specified partition is invalid", read_by(&consumer, "9", 1, from(StartLocation::Earliest, false)).await)
    });
    trial.operation("properties_of_a_missing_partition_are_told", |hub| async move {
        fails("", consumer(&hub).await?.get_partition_properties("9").await)
    });
    trial.operation("properties_of_a_missing_hub_are_told", |hub| async move {
        let result = match consumer(&format!("{hub}-missing")).await {
            Ok(consumer) => consumer.get_eventhub_properties().await.map_err(Problem::from),
            Err(problem) => Err(problem),
        };
        fails("", result)
    });
    trial.operation("reader_with_a_wrong_key_is_told", |hub| async move {
        let string = connection_string().replace(&trial::value("SharedAccessKey"), "wrong");
        let result = match consumer_with(&string, &hub, "$Default").await {
            Ok(consumer) => read_by(&consumer, "0", 1, from(StartLocation::Earliest, false)).await,
            Err(problem) => Err(problem),
        };
        fails("", result)
    });
}
