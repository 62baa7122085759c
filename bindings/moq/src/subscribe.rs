//! `ontempo subscribe`.

use std::task::Poll;
use std::time::{Duration, Instant};

use moq_mux::catalog::CatalogFormat;
use moq_mux::container::ts;
use moq_mux::{Pacer, Source};

use crate::arguments::{Relay, Subscribe};
use crate::connecting::{Reporter, address, causes, client, close, ended, established, stopped};
use crate::failure::Failure;
use crate::sink::Sink;

/// Maximum bytes of groups that are kept: 25 s of 80 Mbit/s.
const MAX_CACHE: u64 = 256 << 20;

/// How long after an error of the stream the connection says that it is lost: a relay that ends may have ended its
/// streams well before.
const LOST: Duration = Duration::from_secs(5);

/// How much longer than the latency a group is kept.
const CACHED: Duration = Duration::from_secs(5);

pub(crate) async fn subscribe(arguments: &Subscribe) -> Result<(), Failure> {
    let relay = &arguments.relay;
    let name = &relay.url.name;
    let mut sink = Sink::open(&arguments.to, arguments.overwrite).await?;
    let client = client(relay)?;
    let origin = moq_tokio::origin::spawn_config(cache(arguments.latency));
    let connection = client.clone().with_subscriber(origin.clone()).connect(address(relay)?);
    let mut reporter = Reporter::new(relay.json);
    let connection = tokio::select! {
        connection = established(&client, connection, relay) => connection?,
        () = stopped() => return Ok(()),
    };
    let receive = async {
        let consumer = origin.consume();
        match tokio::time::timeout(relay.give_up, consumer.routed(name)).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                return Err(Failure::Environment(format!("the relay has no stream {name}")));
            }
            Err(_) => return Err(no_stream(relay)),
        }
        reporter.event("receiving", &format!("receiving {name}"));
        receive(
            arguments,
            Source::new(consumer, name.as_str()),
            &mut sink,
            &mut reporter,
            &connection,
        )
        .await
    };
    let done = tokio::select! {
        done = receive => done,
        lost = connection.closed() => match lost {
            Ok(()) => Err(Failure::Environment("the relay has ended the connection".to_owned())),
            Err(error) => Err(ended(relay, &error)),
        },
        () = stopped() => Ok(()),
    };
    let written = sink.end().await.map_err(|error| Failure::Environment(format!("--to: {error}")));
    close(client, connection).await;
    done.and(written)?;
    reporter.event("received", &format!("received {} bytes", reporter.bytes()));
    Ok(())
}

/// What is kept of what a relay sends: bounded, whatever it sends.
fn cache(latency: Duration) -> moq_net::origin::Config {
    let pool = moq_net::cache::Config::default()
        .with_expiry(moq_net::cache::DEFAULT_EXPIRY)
        .with_capacity(MAX_CACHE);
    let mut config = moq_net::origin::Config::default();
    config.pool = moq_net::cache::Pool::new(pool);
    config.cache_duration = latency + CACHED;
    config
}

/// Writes the stream to its end, each part at its time.
async fn receive(
    arguments: &Subscribe,
    source: Source,
    sink: &mut Sink,
    reporter: &mut Reporter,
    connection: &moq_tokio::Connection,
) -> Result<(), Failure> {
    let name = &arguments.relay.url.name;
    let failed = |error: &moq_mux::Error| failed(name, error);
    let format = CatalogFormat::detect(name).unwrap_or_default();
    let mut broadcast = source.broadcast().await.map_err(|error| failed(&error))?;
    let export = ts::Export::with_ts(source.clone(), format).await;
    let export = export.map_err(|error| failed(&error))?;
    let mut export = export.with_max_age(arguments.latency);
    // The export says when each part of the stream is to be written; a player takes its clock from that.
    let mut pacer = Pacer::default().with_lead(arguments.latency);
    let mut discontinuities = 0;
    let mut epoch = connection.epoch();
    loop {
        let frame = moq_net::kio::wait(|waiter| match export.poll_next(waiter) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(next) => Poll::Ready(next),
        });
        let frame = match frame.await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(error) => {
                let mut error = Some(error);
                while let Some(cause) = error {
                    if !is_lost(connection, epoch).await {
                        return Err(failed(&cause));
                    }
                    broadcast = returned(&arguments.relay, &source, &broadcast, connection).await?;
                    epoch = connection.epoch();
                    // It may be lost again meanwhile.
                    error = export.resume().await.err();
                }
                reporter.event("receiving", &format!("receiving {name} again"));
                continue;
            }
        };
        let now = Instant::now();
        let at = if export.discontinuity() == discontinuities {
            pacer.pace(frame.timestamp, now)
        } else {
            discontinuities = export.discontinuity();
            pacer.hurry(frame.timestamp, now)
        };
        tokio::time::sleep_until(at.into()).await;
        sink.write(&frame.payload).await.map_err(|error| {
            Failure::Environment(format!("--to: cannot be written to: {error}"))
        })?;
        reporter.count(frame.payload.len(), connection);
    }
}

/// Whether an error of the stream is one of this connection, which calls the relay again, and may be there again.
async fn is_lost(connection: &moq_tokio::Connection, epoch: u64) -> bool {
    let mut connection = connection.clone();
    let is_there = |now: &moq_tokio::Connection| now.connected() && now.epoch() == epoch;
    let lost = async { while is_there(&connection) && connection.status().await.is_ok() {} };
    tokio::time::timeout(LOST, lost).await.is_ok()
}

/// Waits for the relay without a bound, then for the stream.
async fn returned(
    relay: &Relay,
    source: &Source,
    before: &moq_net::broadcast::Consumer,
    connection: &moq_tokio::Connection,
) -> Result<moq_net::broadcast::Consumer, Failure> {
    let connection = connection.clone().established().await;
    let _connection = connection.map_err(|error| ended(relay, &error))?;
    match tokio::time::timeout(relay.give_up, source.returned(before)).await {
        Ok(stream) => stream.map_err(|error| failed(&relay.url.name, &error)),
        Err(_) => Err(no_stream(relay)),
    }
}

fn failed(name: &str, error: &moq_mux::Error) -> Failure {
    Failure::Environment(format!("the stream {name} has ended: {}", causes(error)))
}

fn no_stream(relay: &Relay) -> Failure {
    Failure::Environment(format!(
        "the relay has no stream {}, within {:?} (--give-up)",
        relay.url.name, relay.give_up
    ))
}
