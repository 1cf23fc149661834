//! Processors, with the SDK's store in memory and one of our own.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use azure_core::{http::Etag, time::Duration, time::OffsetDateTime};
use azure_messaging_eventhubs::{
    builders::EventProcessorBuilder,
    models::{Checkpoint, Ownership, StartPositions},
    CheckpointStore, EventProcessor, InMemoryCheckpointStore, ProcessorStrategy, StartLocation, StartPosition,
};
use futures::StreamExt;
use trial::{equal, numbered, Problem, Trial};

use crate::{bodies, consumer, into_partition, numbers, producer};

pub fn operations(trial: &mut Trial) {
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
    trial.operation("processor_with_a_store_of_its_own", |hub| async move {
        let store = Arc::new(Memory::default());
        numbers(&hub, 2).await?;
        equal("bodies", process(&hub, store.clone(), 2).await?, numbered(2))?;
        equal("checkpoint", store.checkpoints.lock().unwrap().get("0").and_then(|each| each.sequence_number), Some(1))?;
        producer(&hub).await?.send_event("later", into_partition("0")).await?;
        equal("bodies", process(&hub, store, 1).await?, vec!["later".to_string()])
    });
    trial.operation("two_processors_share", |hub| async move {
        let store = Arc::new(Memory::default());
        let mut running = Vec::new();
        for _ in 0..2 {
            let processor = balanced(ProcessorStrategy::Balanced).build(consumer(&hub).await?, store.clone()).await?;
            running.push(tokio::spawn(async move { processor.run().await }));
        }
        while store.owners().len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await; // the trial's patience ends it
        }
        running.iter().for_each(|each| each.abort());
        Ok(())
    });
}

/// A checkpoint store in memory, of one hub and group, by partition.
#[derive(Default)]
struct Memory {
    checkpoints: Mutex<HashMap<String, Checkpoint>>,
    ownerships: Mutex<HashMap<String, Ownership>>,
}

impl Memory {
    fn owners(&self) -> HashSet<Option<String>> {
        self.ownerships.lock().unwrap().values().map(|each| each.owner_id.clone()).collect()
    }
}

#[async_trait::async_trait]
impl CheckpointStore for Memory {
    async fn claim_ownership(&self, wanted: &[Ownership]) -> azure_core::Result<Vec<Ownership>> {
        let mut present = self.ownerships.lock().unwrap();
        let mut claimed = Vec::new();
        for each in wanted {
            if present.get(&each.partition_id).is_some_and(|known| known.etag != each.etag) {
                continue;
            }
            let now = OffsetDateTime::now_utc();
            let etag = Some(Etag::from(now.unix_timestamp_nanos().to_string()));
            let owned = Ownership { etag, last_modified_time: Some(now), ..each.clone() };
            present.insert(each.partition_id.clone(), owned.clone());
            claimed.push(owned);
        }
        Ok(claimed)
    }

    async fn list_checkpoints(&self, _: &str, _: &str, _: &str) -> azure_core::Result<Vec<Checkpoint>> {
        Ok(self.checkpoints.lock().unwrap().values().cloned().collect())
    }

    async fn list_ownerships(&self, _: &str, _: &str, _: &str) -> azure_core::Result<Vec<Ownership>> {
        Ok(self.ownerships.lock().unwrap().values().cloned().collect())
    }

    async fn update_checkpoint(&self, checkpoint: Checkpoint) -> azure_core::Result<()> {
        self.checkpoints.lock().unwrap().insert(checkpoint.partition_id.clone(), checkpoint);
        Ok(())
    }
}

fn balanced(strategy: ProcessorStrategy) -> EventProcessorBuilder {
    let earliest = StartPosition { location: StartLocation::Earliest, inclusive: false };
    EventProcessor::builder().with_load_balancing_strategy(strategy)
        .with_update_interval(Duration::milliseconds(200)).with_partition_expiration_duration(Duration::seconds(1))
        .with_start_positions(StartPositions { default: earliest, ..Default::default() })
}

/// So many events of partition 0, each of them a checkpoint.
async fn process(hub: &str, store: Arc<dyn CheckpointStore>, count: usize) -> Result<Vec<String>, Problem> {
    let processor = balanced(ProcessorStrategy::Greedy).build(consumer(hub).await?, store).await?;
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
