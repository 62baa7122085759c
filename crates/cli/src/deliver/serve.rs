//! `ontempo receive --serve`: the page for browsers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as Wall;

use ontempo_session::{DatagramTaker, ReceiverEvent, TakenDatagram, Target, own_host};
use ontempo_web::{
    Certificate, CertificateError, Feed, Server, ServerError, ServerOptions, StreamTiming,
};
use serde_json::{Value, json};

use super::read;
use super::status_line::StatusLine;
use crate::access::{Admitted, viewers_token};
use crate::address::resolve;
use crate::arguments::{MAX_BROWSERS, Page, Serve};
use crate::failure::{Failure, environment};

/// The port that error messages suggest.
const EXAMPLE_PORT: u16 = 8443;

/// Viewers at a time, if nothing is said.
const VIEWERS: u32 = 50;

/// The server of the page, and what it is fed.
pub(super) struct Pages {
    feed: Arc<Mutex<Feed>>,
    server: Server,
    /// What stands for the token in the link: itself, unless it was given.
    shown_token: String,
    /// A name or an address of this host.
    host: String,
}

/// Gives each datagram to the page.
struct Taker(Arc<Mutex<Feed>>);

impl DatagramTaker for Taker {
    fn take(&mut self, datagram: TakenDatagram<'_>) {
        let late = Wall::from_nanos(datagram.late.as_nanos());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(datagram.data, late);
    }
}

impl Pages {
    /// Starts the server of the page, if one is asked for, for so many `viewers` who present the token of
    /// `admitted`.
    pub(super) fn start(
        options: &Page,
        admitted: impl FnOnce() -> Result<Admitted, Failure>,
        viewers: u32,
    ) -> Result<Option<Self>, Failure> {
        let Some(at) = &options.serve else { return Ok(None) };
        let admitted = admitted()?;
        let host = own_host();
        let server = Server::start(ServerOptions {
            at: address(at)?,
            certificate: certificate(options)?,
            names: names(&host),
            token: Some(admitted.text().to_owned()),
            allowed_origins: options.allow_origin.clone(),
            viewers: viewers.min(MAX_BROWSERS) as usize,
        });
        let server = server.map_err(|error| match error {
            ServerError::Io(error) => Failure::Environment(format!("--serve {at}: {error}")),
            error => environment(error),
        })?;
        let feed = Arc::new(Mutex::new(server.feed()));
        let shown_token = if admitted.is_made() { admitted.text() } else { "TOKEN" }.to_owned();
        Ok(Some(Self { feed, server, shown_token, host }))
    }

    /// The page of a receiver.
    pub(super) fn of_receiver(options: &Serve) -> Result<Option<Self>, Failure> {
        let admitted = || viewers_token(options.viewers_token_file.as_deref());
        Self::start(&options.page, admitted, options.viewers.unwrap_or(VIEWERS))
    }

    /// Says where the page is. A token that was given is not printed.
    pub(super) fn announce(&self, status: &StatusLine) -> Result<(), Failure> {
        let local = self.server.local();
        let url = self.server.link(&self.host, &self.shown_token);
        if status.documents.is_on() {
            let document = json!({ "local": local.to_string(), "url": url });
            return status.documents.emit("serving", document);
        }
        status.message(&format!("watch at {url}"));
        Ok(())
    }

    /// The target of a stream.
    pub(super) fn target(&self) -> Target {
        Target::Taker(Box::new(Taker(Arc::clone(&self.feed))))
    }

    fn with(&self, change: impl FnOnce(&mut Feed)) {
        change(&mut self.feed.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What becomes of the stream.
    pub(super) fn follow(&self, event: &ReceiverEvent<'_>) {
        match event {
            ReceiverEvent::Receiving(_) => self.with(Feed::go_on),
            // Not with full reliability.
            ReceiverEvent::Latency { latency, .. } => {
                let latency = Some(Wall::from_nanos(latency.as_nanos()));
                self.with(|feed| feed.begin(StreamTiming { latency }));
            }
            ReceiverEvent::Lost(..) => self.with(Feed::lost),
            ReceiverEvent::StreamEnded(_) => self.with(Feed::end),
            _ => {}
        }
    }

    /// The figures of the last second.
    pub(super) fn figures(&self, figures: &Value) {
        let keys = ["input_bps", "loss", "round_trip_s", "mean_jitter_s"];
        let mut chosen = json!({});
        for key in keys {
            chosen[key] = figures[key].clone();
        }
        let keys = [
            "units",
            "late_units",
            "dropped_units",
            "whole_datagrams",
            "damaged_datagrams",
            "missing_datagrams",
        ];
        for key in keys {
            chosen[key] = figures["stream"][key].clone();
        }
        self.with(|feed| feed.figures(chosen));
    }
}

/// `[ADDRESS]:PORT` to listen at: without an address at all of this machine's, of both versions of IP if it has them.
fn address(at: &str) -> Result<SocketAddr, Failure> {
    let Some(port) = at.strip_prefix(':').or_else(|| (!at.contains(':')).then_some(at)) else {
        return resolve(at, "--serve ");
    };
    let port: u16 = port.parse().map_err(|_| {
        Failure::Input(format!("--serve {at}: `{port}` is no port: write :{EXAMPLE_PORT}"))
    })?;
    let has_v6 = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let any: IpAddr =
        if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    Ok(SocketAddr::new(any, port))
}

/// Names of this host.
fn names(host: &str) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    for name in [name.trim(), host] {
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn certificate(options: &Page) -> Result<Option<Certificate>, Failure> {
    let (Some(certificate), Some(key)) = (&options.certificate, &options.key) else {
        return Ok(None);
    };
    let chain = read(certificate, "--certificate")?;
    let secret = read(key, "--key")?;
    Certificate::from_pem(&chain, &secret).map(Some).map_err(|error| {
        let (option, path) = match &error {
            CertificateError::Pem("private key", _) => ("--key", key),
            _ => ("--certificate", certificate),
        };
        Failure::Input(format!("{option} {}: {error}", path.display()))
    })
}
