//! `ontempo publish`.

use std::time::Duration;

use moq_mux::catalog;
use moq_mux::container::ts;

use crate::arguments::Publish;
use crate::connecting::{Reporter, address, causes, client, close, ended, established, stopped};
use crate::failure::Failure;
use crate::source::Source;

/// Bytes within which the tables of a transport stream are found: more than 4 s of 2 Mbit/s.
const TABLES: u64 = 1 << 20;

/// How long a relay has to read the ends of the tracks. QUIC may have acknowledged what its program has not read yet, and a
/// closed connection takes that away: subscribers would see an error instead of the end.
const READ_BY_RELAY: Duration = Duration::from_millis(500);

/// What is published, while it is.
struct Broadcast {
    import: ts::Import<ts::Ext>,
    catalog: catalog::Producer<ts::Ext>,
}

pub(crate) async fn publish(arguments: &Publish) -> Result<(), Failure> {
    let relay = &arguments.relay;
    let name = &relay.url.name;
    let mut source = Source::open(&arguments.from).await?;
    let client = client(relay)?;
    let origin = moq_tokio::origin::spawn();
    let wrong = |error: &(dyn std::error::Error + 'static)| {
        Failure::Environment(format!("the stream {name} cannot be published: {}", causes(error)))
    };
    let mut broadcast = origin.create_broadcast(name).map_err(|error| wrong(&error))?;
    let config = catalog::Config::default()
        .with_max_age(arguments.max_age)
        .with_catalog(catalog::hang::Catalog::<ts::Ext>::default());
    let catalog = catalog::Producer::new(&mut broadcast, config).map_err(|error| wrong(&error))?;
    let import = ts::Import::new(broadcast.clone(), catalog.reserve()).live();
    broadcast.announce(Default::default()).map_err(|error| wrong(&error))?;
    let connection = client.clone().with_publisher(&origin).connect(address(relay)?);
    let mut reporter = Reporter::new(relay.json);
    let connection = tokio::select! {
        connection = established(&client, connection, relay) => connection?,
        () = stopped() => return Ok(()),
    };
    reporter.event("publishing", &format!("publishing {name}"));
    let mut published = Broadcast { import, catalog };
    let done = tokio::select! {
        done = published.run(&mut source, &mut reporter, &connection) => done,
        lost = connection.closed() => match lost {
            Ok(()) => Err(Failure::Environment("the relay has ended the connection".to_owned())),
            Err(error) => Err(ended(relay, &error)),
        },
        () = stopped() => Ok(()),
    };
    let done = published.end(done, reporter.bytes());
    if connection.connected() {
        tokio::time::sleep(READ_BY_RELAY).await;
    }
    broadcast.close();
    close(client, connection).await;
    done?;
    let strange = match source.strange() {
        0 => String::new(),
        count => format!(
            "; {count} datagrams were no packets of MPEG-TS, or from another host, and left out"
        ),
    };
    reporter.event("published", &format!("published {} bytes{strange}", reporter.bytes()));
    Ok(())
}

impl Broadcast {
    /// Publishes the source to its end.
    async fn run(
        &mut self,
        source: &mut Source,
        reporter: &mut Reporter,
        connection: &moq_tokio::Connection,
    ) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        loop {
            let read = source.read(&mut buffer).await;
            read.map_err(|error| Failure::Environment(format!("--from: {error}")))?;
            if buffer.is_empty() {
                return Ok(());
            }
            self.import.decode(&buffer).map_err(|error| {
                let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
                Failure::Input(format!(
                    "--from: this is no stream that can be published: {}",
                    causes.join(": ")
                ))
            })?;
            reporter.count(buffer.len(), connection);
            if reporter.bytes() > TABLES {
                self.check_streams(reporter.bytes())?;
            }
        }
    }

    /// Fails if nothing of what came can be published.
    fn check_streams(&self, bytes: u64) -> Result<(), Failure> {
        match bytes > 0 && self.import.stats().is_empty() {
            true => Err(Failure::Input(format!(
                "--from: in {bytes} bytes there were no pictures and no sound of a transport stream (MPEG-TS)"
            ))),
            false => Ok(()),
        }
    }

    /// Ends the tracks, then the catalog that lists them; after a failure subscribers learn of it.
    fn end(mut self, done: Result<(), Failure>, bytes: u64) -> Result<(), Failure> {
        let done = done.and_then(|()| self.check_streams(bytes)).and_then(|()| {
            let failed = |error: String| Failure::Input(format!("--from: its end: {error}"));
            self.import.finish().map_err(|error| failed(error.to_string()))?;
            self.catalog.finish().map_err(|error| failed(causes(&error)))
        });
        if let Err(failure) = &done {
            self.import.abort(moq_net::Error::Transport(failure.to_string()));
        }
        done
    }
}
