//! `ontempo relay`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Wall, Instant};

use ontempo_mechanisms::congestion::CongestionName;
use ontempo_monitor::{FlowReport, FlowRole, ViewersReport};
use ontempo_relay::{
    Access, RelayEvent, RelayOptions, RelayStatistics, RelayThreads, StreamStatistics,
    configuration, endpoints,
};
use ontempo_session::StreamName;
use ontempo_transport::{Configuration, Fingerprint};
use ontempo_udp::{SocketOptions, random};
use serde_json::json;

use super::EXAMPLE_PORT;
use super::documents::{Counters, Documents, Meter};
use super::published::{self, Published, with_rates};
use super::receive::identity;
use super::relay_page::RelayPage;
use super::serve::Pages;
use super::status_line::StatusLine;
use crate::access::{Admitted, admitted, viewers_token};
use crate::address::socket_at;
use crate::arguments::{Admission, Credentials, Relay as Arguments};
use crate::failure::{Failure, environment};
use crate::output::counted;
use crate::signals::stop_flag;

/// Interval of figures, and of looking whether to stop.
const INTERVAL: Wall = Wall::from_secs(1);
const STEP: Wall = Wall::from_millis(50);

/// Part of the viewers' places that one address has by default.
const SHARE: u32 = 4;

pub(crate) fn relay(arguments: &Arguments) -> Result<(), Failure> {
    let documents = Documents::new(arguments.json);
    let done = run(arguments, documents);
    documents.fail(&done);
    done
}

fn run(arguments: &Arguments, documents: Documents) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let identity = identity(arguments.identity.as_deref())?;
    let options = options(arguments);
    let configuration = Configuration {
        congestion: arguments.congestion.or(CongestionName::FOR_MEDIA).map_err(Failure::Input)?,
        ..configuration(&options)
    };
    let dscp = arguments.dscp.unwrap_or_default();
    let of_socket = SocketOptions { dscp, ..SocketOptions::default() };
    let socket = socket_at(&arguments.listen, "--listen", EXAMPLE_PORT, of_socket)?;
    let publishing = with_token(&arguments.credentials)?;
    let viewing = viewers_token(arguments.viewers_token_file.as_deref())?;
    if publishing.is_same(&viewing) {
        let sentence =
            "it holds the token of sources, with which viewers could send: choose another";
        return Err(Failure::Input(format!("--viewers-token-file: {sentence}")));
    }
    let pages = Pages::start(&arguments.page, || Ok(viewing.clone()), arguments.viewers)?;
    let access = Access {
        identity: &identity,
        sources: publishing.token.clone(),
        viewers: Some(viewing.token.clone()),
    };
    let endpoints = endpoints(&configuration, &access, &options, seed).map_err(environment)?;
    let local = socket.local_address().map_err(environment)?;
    let status = StatusLine::new(documents);
    let at = (local, identity.fingerprint());
    announce(arguments, &status, [&publishing, &viewing], at)?;
    let threads = RelayThreads::start(socket, of_socket, endpoints, (options, random()))
        .map_err(environment)?;
    let page = pages.map(|pages| {
        pages.announce(&status)?;
        RelayPage::start(arguments, pages, &viewing, at, &stop)
    });
    let page = page.transpose()?;
    let ended = watch(&threads, page.as_ref(), status, Flows::start(local), &stop);
    // Only a page whose thread the flag ends can be waited for.
    stop.store(true, Ordering::Relaxed);
    drop(page);
    threads.end().map_err(environment)?;
    ended
}

fn options(arguments: &Arguments) -> RelayOptions {
    let viewers_of_host =
        arguments.viewers_of_host.unwrap_or_else(|| arguments.viewers.div_ceil(SHARE));
    RelayOptions {
        viewers: arguments.viewers as usize,
        viewers_of_host: viewers_of_host as usize,
        streams: arguments.streams as usize,
        memory: arguments.memory,
        has_viewers_token: true,
        threads: arguments.threads,
        ..RelayOptions::default()
    }
}

/// The token of the options or of its file, or a new one.
fn with_token(credentials: &Credentials) -> Result<Admitted, Failure> {
    admitted(&Admission { credentials: credentials.clone(), anyone: false, qr: false })
}

fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random().to_le_bytes()));
    seed
}

/// Prints where it listens, and the command lines of its source and of receivers.
fn announce(
    arguments: &Arguments,
    status: &StatusLine,
    [publishing, viewing]: [&Admitted; 2],
    (local, fingerprint): (SocketAddr, Fingerprint),
) -> Result<(), Failure> {
    let urls = [publishing, viewing].map(|admitted| admitted.url(local, fingerprint, false));
    if arguments.json {
        let document = json!({
            "local": local.to_string(),
            "fingerprint": fingerprint.to_string(),
            "url": urls[0].to_string(),
            "viewers_url": urls[1].to_string(),
        });
        return status.documents.emit("listening", document);
    }
    status.message(&format!("listening at {local}, fingerprint {fingerprint}"));
    let lines = [
        publishing.invitation("ontempo send --from ... --to", &urls[0]),
        viewing.invitation("ontempo receive --to ... --from", &urls[1]),
    ];
    lines.iter().flat_map(|line| line.lines()).for_each(|line| status.message(line));
    Ok(())
}

/// Shows figures and events until `stop`.
fn watch(
    threads: &RelayThreads,
    page: Option<&RelayPage>,
    mut status: StatusLine,
    mut flows: Flows,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut due = Instant::now() + INTERVAL;
    loop {
        if threads.has_ended() {
            return Err(Failure::Environment("the socket of the relay has failed".to_owned()));
        }
        let is_stopped = stop.load(Ordering::Relaxed);
        let sentences = page.into_iter().flat_map(|page| page.sentences.try_iter());
        sentences.for_each(|sentence| status.warn(&sentence));
        if is_stopped || Instant::now() >= due {
            due = Instant::now() + INTERVAL;
            if let Some((figures, events)) = threads.report() {
                events.iter().for_each(|event| tell(&mut status, event));
                flows.publish(&figures);
                status.show(&line(&figures), document(&figures))?;
            }
        }
        if is_stopped {
            status.end();
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}

/// What is published: the relay, then each of its streams.
struct Flows {
    relay: FlowReport,
    /// What the viewers that there are were not sent, when it was published last: one that leaves takes its own along.
    left_out: u64,
    meter: Meter,
    /// By name: the number of the stream, and its rate.
    streams: BTreeMap<Option<StreamName>, (u32, Meter)>,
    next: u32,
    published: Published,
}

impl Flows {
    fn start(local: SocketAddr) -> Self {
        let place = local.to_string();
        let relay = FlowReport { id: 0, role: FlowRole::Relay, place, ..FlowReport::default() };
        let published = Published::start(vec![relay.clone()]);
        Self {
            relay,
            left_out: 0,
            meter: Meter::new(),
            streams: BTreeMap::new(),
            next: 0,
            published,
        }
    }

    fn publish(&mut self, all: &RelayStatistics) {
        let now = Instant::now();
        let counters =
            Counters { input: all.bytes_received, output: all.bytes_sent, ..Counters::default() };
        // A counter does not fall.
        self.relay.dropped_units += all.left_out.saturating_sub(self.left_out);
        self.left_out = all.left_out;
        let relay = FlowReport {
            flowing: all.streams.iter().any(|stream| stream.is_live),
            input_bytes: all.bytes_received,
            output_bytes: Some(all.bytes_sent),
            viewers: Some(ViewersReport { count: all.viewers, ..ViewersReport::default() }),
            ..self.relay.clone()
        };
        let mut flows = vec![with_rates(relay, &self.meter.rates(now, counters))];
        self.streams.retain(|name, _| all.streams.iter().any(|stream| stream.name == *name));
        for stream in &all.streams {
            let (id, meter) = self.streams.entry(stream.name.clone()).or_insert_with(|| {
                self.next += 1;
                (self.next, Meter::new())
            });
            let counters = Counters { input: stream.bytes, ..Counters::default() };
            let rates = meter.rates(now, counters);
            let flow = FlowReport {
                id: *id,
                role: FlowRole::Stream,
                name: stream.name.as_ref().map_or_else(String::new, ToString::to_string),
                place: self.relay.place.clone(),
                flowing: stream.is_live,
                input_bytes: stream.bytes,
                units: stream.units,
                late_units: stream.late,
                dropped_units: stream.refused,
                viewers: Some(published::viewers(&stream.viewers)),
                ..FlowReport::default()
            };
            flows.push(FlowReport { output_bps: None, loss: None, ..with_rates(flow, &rates) });
        }
        self.published.publish(flows);
    }
}

fn named(stream: &Option<StreamName>) -> String {
    stream.as_ref().map_or_else(|| "the stream".to_owned(), |name| format!("stream {name}"))
}

fn tell(status: &mut StatusLine, event: &RelayEvent) {
    match event {
        RelayEvent::Published { stream, remote } => {
            let remote = remote.map_or_else(String::new, |remote| format!(" from {remote}"));
            status.connection(&format!("{} is received{remote}", named(stream)));
        }
        RelayEvent::Away(stream) => {
            status.connection(&format!("the source of {} is away", named(stream)));
        }
        RelayEvent::Ended(stream) => status.connection(&format!("{} has ended", named(stream))),
        RelayEvent::Closed { remote, reason } => {
            let client = remote.map_or_else(|| "a client".to_owned(), |at| at.to_string());
            status.refused(&format!("{client} was refused or closed: {reason}"));
        }
        // The enum is non-exhaustive.
        _ => {}
    }
}

fn line(all: &RelayStatistics) -> String {
    let of = |stream: &StreamStatistics| {
        format!(
            "; {}: {}, {}, {:.1} % of datagrams bad at the median one, {:.1} % at the \
             worst",
            named(&stream.name),
            counted(stream.units, "unit"),
            counted(stream.viewers.count, "viewer"),
            stream.viewers.median_bad_share * 100.0,
            stream.viewers.worst_bad_share * 100.0
        )
    };
    let streams: String = all.streams.iter().map(of).collect();
    let viewers = counted(all.viewers, "viewer");
    format!("{viewers}, {:.1} MB held{streams}", all.held as f64 / 1e6)
}

fn document(all: &RelayStatistics) -> serde_json::Value {
    let of = |stream: &StreamStatistics| {
        json!({
            "name": stream.name.as_ref().map(ToString::to_string),
            "is_live": stream.is_live,
            "units": stream.units,
            "bytes": stream.bytes,
            "late_units": stream.late,
            "refused_units": stream.refused,
            "kept_bytes": stream.kept,
            "viewers": stream.viewers,
        })
    };
    json!({
        "viewers": all.viewers,
        "held_bytes": all.held,
        "left_out_units": all.left_out,
        "streams": all.streams.iter().map(of).collect::<Vec<_>>(),
    })
}
