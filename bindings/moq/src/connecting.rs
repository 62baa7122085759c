//! The connection to the relay, and what the user is told of it.

use std::io::Write;
use std::time::{Duration, Instant};

use moq_tokio::{Client, Connection, connect, tls};
use ontempo_place::read_token;
use serde_json::{Value, json};
use url::Url;

use crate::arguments::Relay;
use crate::failure::Failure;

/// How long the end of a stream is waited for to reach the relay.
const LAST_BYTES: Duration = Duration::from_secs(5);

/// How long the cause is looked for why a relay has not answered.
const CAUSE: Duration = Duration::from_secs(2);

/// A client for this relay.
pub(crate) fn client(relay: &Relay) -> Result<Client, Failure> {
    config(relay)?.init(Default::default()).map_err(|error| match &relay.trust {
        Some(file) => Failure::Input(format!("--trust {}: {}", file.display(), causes(&error))),
        None => Failure::Environment(format!("no connection can be made: {}", causes(&error))),
    })
}

fn config(relay: &Relay) -> Result<connect::Config, Failure> {
    let mut trust = tls::Connect::default();
    match (&relay.fingerprint, &relay.trust, relay.insecure) {
        (Some(hex), ..) => {
            tls::parse_fingerprint(hex)
                .map_err(|error| Failure::Input(format!("--fingerprint: {error}")))?;
            trust.fingerprint = vec![hex.clone()];
        }
        (_, Some(file), _) => trust.root = vec![file.clone()],
        (.., true) => trust.insecure = Some(true),
        _ => trust.system_roots = Some(true),
    }
    let mut connect = connect::Config::default();
    connect.tls = trust;
    // Without a bound: a relay that goes away is called again for as long as the program runs. `established` bounds
    // the first call.
    connect.backoff.timeout = Duration::ZERO;
    Ok(connect)
}

/// The relay's address, with the token of a file.
pub(crate) fn address(relay: &Relay) -> Result<Url, Failure> {
    let mut address = relay.url.relay.clone();
    if let Some(file) = &relay.token_file {
        let named = format!("--token-file {}", file.display());
        let read = read_token(file, || false);
        let token = read.map_err(|error| Failure::Input(format!("{named}: {error}")))?;
        let Some(token) = token else {
            return Err(Failure::Input(format!("{named}: it must hold one line, the token")));
        };
        address.query_pairs_mut().append_pair("jwt", &token);
    }
    Ok(address)
}

/// Waits for the first session.
pub(crate) async fn established(
    client: &Client,
    connection: Connection,
    relay: &Relay,
) -> Result<Connection, Failure> {
    let host = relay.url.relay.host_str().unwrap_or_default().to_owned();
    match tokio::time::timeout(relay.give_up, connection.established()).await {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(error)) => return Err(ended(relay, &error)),
        Err(_) => {}
    }
    // A connection that calls again does not say why; one that does not says it, as of a wrong certificate.
    let once = client.clone().with_reconnect(false).connect(address(relay)?);
    if let Ok(Err(error)) = tokio::time::timeout(CAUSE, once.established()).await {
        return Err(ended(relay, &error));
    }
    Err(Failure::Environment(format!(
        "{host} does not answer as a relay for Media over QUIC, within {:?} (--give-up): is UDP let through?",
        relay.give_up
    )))
}

/// Why a connection is not made again.
pub(crate) fn ended(relay: &Relay, error: &moq_tokio::Error) -> Failure {
    let host = relay.url.relay.host_str().unwrap_or_default();
    Failure::Environment(format!("the connection to {host} has ended: {}", causes(error)))
}

/// An error with what caused it, in a line.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Lets the relay have what was sent last, and closes.
pub(crate) async fn close(client: Client, connection: Connection) {
    let _ = tokio::time::timeout(LAST_BYTES, connection.close()).await;
    let _ = tokio::time::timeout(LAST_BYTES, client.close()).await;
}

/// Waits for Ctrl-C, or for the signal to terminate.
pub(crate) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// What is printed: events on standard error, or documents of JSON on standard output.
pub(crate) struct Reporter {
    json: bool,
    begun: Instant,
    /// Bytes so far, and those when figures were printed last.
    bytes: [u64; 2],
    due: Instant,
}

/// Interval of figures.
const INTERVAL: Duration = Duration::from_secs(1);

impl Reporter {
    pub(crate) fn new(json: bool) -> Self {
        let begun = Instant::now();
        Self { json, begun, bytes: [0; 2], due: begun + INTERVAL }
    }

    /// An event: a name and a sentence.
    pub(crate) fn event(&self, event: &str, text: &str) {
        if self.json {
            self.print(event, json!({ "text": text }));
        } else {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    fn print(&self, event: &str, mut document: Value) {
        document["event"] = json!(event);
        document["seconds"] = json!(self.begun.elapsed().as_secs_f64());
        // Who read them may have gone away: the stream goes on.
        let _ = writeln!(std::io::stdout(), "{document}");
    }

    /// Counts bytes, and prints figures each second.
    pub(crate) fn count(&mut self, bytes: usize, connection: &Connection) {
        self.bytes[0] += bytes as u64;
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let [all, before] = self.bytes;
        let span = (now + INTERVAL - self.due).as_secs_f64();
        (self.bytes[1], self.due) = (all, now + INTERVAL);
        if self.json {
            let version = connection.version().map(|version| version.to_string());
            let rate = (all - before) as f64 * 8.0 / span;
            let connected = connection.connected();
            self.print(
                "figures",
                json!({ "bytes": all, "rate_bps": rate, "is_connected": connected, "version": version }),
            );
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes[0]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Command, Program};

    #[test]
    fn a_relay_is_called_again_without_a_bound() {
        let words = ["ontempo", "subscribe", "moq://relay.example/film", "--to", "-"];
        let read = Program::try_parse_from(words).expect("a command");
        let Command::Subscribe(subscribe) = read.command else { panic!("another command") };
        // Zero: without end.
        let config = config(&subscribe.relay).expect("a configuration");
        assert_eq!(config.backoff.timeout, Duration::ZERO);
    }
}
