//! Sources that come while another has their place.

use ontempo_foundation::Time;
use ontempo_session::message::Label;
use ontempo_session::{CONTEST_STEP, Contest, Holder, StreamName, Verdict};
use ontempo_transport::{CloseReason, ConnectionId, Endpoint, FlowConfig, FlowId};

use crate::hub::{Hub, Published};
use crate::inbox::Message;
use crate::relay::{Peer, Relay};
use crate::stream::From;
use crate::viewer::Close;

/// Why a source is refused whose place another has.
const BUSY: Close = (CloseReason::Busy, "another source sends this stream");

/// What a source asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: Option<StreamName>,
    pub(crate) label: Label,
    pub(crate) config: FlowConfig,
    pub(crate) flow: FlowId,
    /// It offers a file, and is to be asked to send a stream.
    pub(crate) is_file: bool,
    /// Its flow has ended while it waited.
    pub(crate) has_ended: bool,
}

/// A source that waits for the place of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Its thread.
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
    session: u128,
    contest: Contest,
}

impl Waiting {
    pub(crate) fn new(
        now: Time,
        (worker, connection): (usize, ConnectionId),
        session: u128,
    ) -> Self {
        Self { worker, connection, session, contest: Contest::new(now) }
    }
}

impl Hub {
    /// A source waits for the place of another, which its thread then asks.
    ///
    /// # Errors
    /// One waits already.
    pub(crate) fn wait(&self, stream: &mut Published, next: Waiting) -> Result<(), Close> {
        match &mut stream.waiting {
            // It has connected again meanwhile.
            Some(before) if before.session == next.session => {
                self.send(before.worker, Message::Retired(before.connection));
                (before.worker, before.connection) = (next.worker, next.connection);
            }
            Some(_) => return Err(BUSY),
            None => stream.waiting = Some(next),
        }
        if let Some(source) = stream.source {
            self.send(source.worker, Message::Contested);
        }
        Ok(())
    }

    /// A source that waited is gone.
    pub(crate) fn stop_waiting(&self, worker: usize, id: ConnectionId, name: &Option<StreamName>) {
        let mut state = self.lock();
        let Some(stream) = state.streams.get_mut(name) else { return };
        let is_it = |waiting: &mut Waiting| (waiting.worker, waiting.connection) == (worker, id);
        stream.waiting.take_if(is_it);
    }
}

impl Relay {
    /// A source begins, comes back, or waits for the place of another; one that offers a file is to send a stream.
    pub(crate) fn claim(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        claim: Claim,
    ) -> Result<(), Close> {
        let (name, is_file) = (claim.name.clone(), claim.is_file);
        self.publish(now, endpoint, id, claim)?;
        if is_file {
            self.want_stream(now, endpoint, id, &name);
        }
        Ok(())
    }

    /// Looks at the sources here whose place others wait for, if that is due.
    pub(crate) fn judge(&mut self, now: Time, endpoint: &mut Endpoint) {
        if now < self.contests_due {
            return;
        }
        self.contests_due = Time::NEVER;
        let (mut asked, mut gone) = (Vec::new(), Vec::new());
        let mut state = self.hub.lock();
        for stream in state.streams.values_mut() {
            let here = stream.source.filter(|source| source.worker == self.worker);
            let (Some(source), Some(waiting)) = (here, &mut stream.waiting) else { continue };
            match waiting.contest.judge(now, holder(now, endpoint, &source)) {
                Verdict::Open { ask } => {
                    self.contests_due = now + CONTEST_STEP;
                    if ask {
                        asked.push((source, stream.summary()));
                    }
                }
                Verdict::Stays => {
                    self.hub.send(waiting.worker, Message::Refused(waiting.connection));
                    stream.waiting = None;
                }
                Verdict::Follows => gone.push(source.connection),
            }
        }
        drop(state);
        for (source, report) in asked {
            // It can always be written.
            let Ok(text) = serde_json::to_string(&report) else { continue };
            crate::source::send_to_source(now, endpoint, (source.connection, source.reports), text);
        }
        for id in gone {
            let close = (CloseReason::Busy, "another source has taken its place");
            self.close(now, endpoint, id, close);
        }
    }

    /// Sources that have waited get their places.
    pub(crate) fn follow(&mut self, now: Time, endpoint: &mut Endpoint) {
        while let Some(id) = self.following.pop() {
            let Some(Peer::Waiting(claim)) = self.peers.get(&id) else { continue };
            let claim = claim.clone();
            let (flow, has_ended) = (claim.flow, claim.has_ended);
            if let Err(close) = self.claim(now, endpoint, id, *claim) {
                self.close(now, endpoint, id, close);
                continue;
            }
            self.read(now, endpoint, id, flow);
            if has_ended && matches!(self.peers.get(&id), Some(Peer::Source(_))) {
                self.on_flow_ended(now, endpoint, id, flow);
                if let Some(connection) = endpoint.connection(id) {
                    connection.release_flow(flow);
                }
            }
        }
    }

    /// The source whose place this one waits for is there.
    pub(crate) fn refuse_waiting(&mut self, now: Time, endpoint: &mut Endpoint, id: ConnectionId) {
        if matches!(self.peers.get(&id), Some(Peer::Waiting(_))) {
            self.close(now, endpoint, id, BUSY);
        }
    }
}

/// A source, as it is seen now.
fn holder(now: Time, endpoint: &mut Endpoint, source: &From) -> Holder {
    let held = now.since(source.since);
    let Some(connection) = endpoint.connection(source.connection) else {
        return Holder { silence: held, held, round_trip: None };
    };
    let over = connection.statistics();
    Holder { silence: now.since(over.heard), held, round_trip: over.round_trip }
}
