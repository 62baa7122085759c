//! `ontempo relay --serve`: the page of a relay.
//!
//! The page is a viewer as others are: it calls the relay in the same program over the loopback, so that it has the relay's
//! rules and budgets, and the relay knows nothing of browsers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver as Sentences, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration as Wall;

use ontempo_session::{
    Call, Receiver, ReceiverEvent, ReceiverHandler, ReceiverOptions, Target, configuration,
};
use ontempo_transport::live::Options;
use ontempo_transport::{Fingerprint, Trust};

use super::receive::Figures;
use super::serve::Pages;
use crate::access::Admitted;
use crate::arguments::Relay as Arguments;
use crate::failure::{Failure, environment};

/// Sentences that wait to be shown; what is beyond is left out.
const MAX_SENTENCES: usize = 16;

/// The relay is in this program: it is called for as long as the program runs.
const GIVE_UP: Wall = Wall::MAX;

/// The thread that receives for the page.
pub(super) struct RelayPage {
    thread: Option<JoinHandle<()>>,
    /// What it has to say to the operator.
    pub(super) sentences: Sentences<String>,
}

impl RelayPage {
    /// Starts to receive for `pages` from the relay at `local`, until `stop`.
    pub(super) fn start(
        arguments: &Arguments,
        pages: Pages,
        viewing: &Admitted,
        (local, fingerprint): (SocketAddr, Fingerprint),
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let call = Call {
            remote: reachable(local),
            name: "localhost".to_owned(),
            trust: Trust::Fingerprint(fingerprint),
            token: viewing.token.clone(),
            transport: Options { configuration: configuration(), ..Options::default() },
            stream: arguments.serve_stream.clone(),
            give_up: GIVE_UP,
        };
        let stop = Arc::clone(stop);
        let options = ReceiverOptions { latency: None, once: false, give_up: None, stop };
        let (say, sentences) = sync_channel(MAX_SENTENCES);
        let thread = std::thread::Builder::new().name("page".to_owned()).spawn(move || {
            let handler = PageHandler { pages, figures: Figures::new(), say: say.clone() };
            if let Err(error) = Receiver::calling(call, options, handler).run() {
                let _ = say.try_send(format!("the page shows nothing any more: {error}"));
            }
        });
        Ok(Self { thread: Some(thread.map_err(environment)?), sentences })
    }
}

impl Drop for RelayPage {
    /// Waits for the thread, which the stop flag ends.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address at which this machine reaches its own listener at `local`.
fn reachable(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, local.port())
}

/// Hands the stream to the page.
struct PageHandler {
    pages: Pages,
    figures: Figures,
    say: SyncSender<String>,
}

impl ReceiverHandler for PageHandler {
    fn open(&mut self) -> Result<Target, String> {
        Ok(self.pages.target())
    }

    fn on_event(&mut self, event: ReceiverEvent<'_>) -> ControlFlow<()> {
        self.pages.follow(&event);
        self.figures.follow(&event);
        match event {
            ReceiverEvent::Progress(report, now) => {
                self.pages.figures(&self.figures.of(report, now));
            }
            ReceiverEvent::Unreadable(what) => {
                let _ = self.say.try_send(format!("page: a unit cannot be read: {what}"));
            }
            ReceiverEvent::Missed(sentence) => {
                let _ = self.say.try_send(format!("page: {sentence}"));
            }
            // What becomes of connections is the relay's own to tell.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
