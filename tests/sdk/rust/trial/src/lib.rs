//! Runs named operations against the bus and prints a line of JSON for each.
//!
//! Where the bus is comes from the environment: BUSWAY_CONNECTION_STRING and BUSWAY_MODE, which is `loopback`, `tls` or
//! `websocket`; trust from SSL_CERT_FILE. Of the last two the string names no port, as when the usual ones are served;
//! BUSWAY_ADDRESS is where it listens in fact. Entities are named with BUSWAY_PREFIX.

use std::{env, fmt::Debug, future::Future, pin::Pin, time::Duration, time::Instant};

pub type Problem = Box<dyn std::error::Error>;
pub type Outcome = Result<(), Problem>;
type Body = Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Outcome>>>>;

const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Default)]
pub struct Trial {
    operations: Vec<(&'static str, Body)>,
}

impl Trial {
    /// It is given the name of an entity that no other operation uses.
    pub fn operation<F, W>(&mut self, name: &'static str, body: F)
    where
        F: Fn(String) -> W + 'static,
        W: Future<Output = Outcome> + 'static,
    {
        self.operations.push((name, Box::new(move |entity| Box::pin(body(entity)))));
    }

    /// Those that are named on the command line, or all.
    pub async fn run(&self) {
        let chosen: Vec<String> = env::args().skip(1).collect();
        for (name, body) in &self.operations {
            if !chosen.is_empty() && !chosen.iter().any(|each| each == name) {
                continue;
            }
            let began = Instant::now();
            let found = match tokio::time::timeout(PATIENCE, body(entity(name))).await {
                Ok(Ok(())) => String::new(),
                Ok(Err(problem)) => format!("{problem} ({problem:?})"),
                Err(_) => "it did not end".to_string(),
            };
            let seconds = began.elapsed().as_secs_f64();
            let line = serde_json::json!({"operation": name, "passed": found.is_empty(), "found": found, "seconds": seconds});
            println!("{line}");
        }
        std::process::exit(0); // clients that could not be closed do not matter
    }
}

/// Of one operation; while a conversation is recorded the one that is there.
fn entity(operation: &str) -> String {
    env::var("BUSWAY_ENTITY").unwrap_or_else(|_| variable("BUSWAY_PREFIX") + operation)
}

pub fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

pub fn connection_string() -> String {
    variable("BUSWAY_CONNECTION_STRING")
}

/// What a connection string has for a name.
pub fn value(name: &str) -> String {
    let string = connection_string();
    let mut parts = string.split(';').filter_map(|part| part.split_once('='));
    parts.find(|(key, _)| *key == name).map(|(_, value)| value.to_string()).unwrap_or_default()
}

pub fn equal<T: PartialEq + Debug>(what: &str, found: T, wanted: T) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what} is {found:?}, not {wanted:?}").into())
}

pub fn holds(what: &str, it_is: bool) -> Outcome {
    if it_is {
        return Ok(());
    }
    Err(format!("not so: {what}").into())
}

/// It failed, and says so.
pub fn fails<T, E: Debug>(words: &str, result: Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Err(format!("nothing failed, but should with: {words}").into()),
        Err(problem) => holds(&format!("{words} in: {problem:?}"), format!("{problem:?}").contains(words)),
    }
}

pub fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}
