//! Sources: what they send goes to all threads, for the viewers of their stream.

use std::cmp::Reverse;
use std::sync::Arc;

use ontempo_foundation::Time;
use ontempo_session::StreamName;
use ontempo_session::file::Reply;
use ontempo_session::message::{Label, REPORTS};
use ontempo_transport::{
    CloseReason, ConnectionId, Delivery, Endpoint, FlowConfig, FlowId, Outgoing, Unit,
};

use crate::contest::{Claim, Waiting};
use crate::hub::Published;
use crate::inbox::Message;
use crate::relay::{Peer, Relay, RelayEvent};
use crate::stream::{From, Relayed, Stage, Stream};
use crate::viewer::Close;

/// Sends a text to a stream's source, if it has a flow of reports.
pub(crate) fn send_to_source(
    now: Time,
    endpoint: &mut Endpoint,
    (connection, reports): (ConnectionId, Option<FlowId>),
    text: String,
) {
    let (Some(flow), Some(connection)) = (reports, endpoint.connection(connection)) else { return };
    // A full queue: the next report has the sums, too.
    let _ = connection.send(now, flow, Outgoing { data: text.into(), ..Outgoing::default() });
}

/// True if a source with this label continues the stream of which this is known, or comes for its last report.
fn is_same(known: &Published, label: &Label, config: &FlowConfig) -> bool {
    known.session == label.session
        && !matches!(known.stage, Stage::Ended { is_complete: false, .. })
        && known.config.order == config.order
        && known.config.reliability == config.reliability
}

impl Relay {
    /// Answers the source that offers a file: it is to send a stream.
    pub(crate) fn want_stream(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        name: &Option<StreamName>,
    ) {
        let source = self.hub.lock().streams.get(name).and_then(|stream| stream.source);
        let is_here = |from: &From| (from.worker, from.connection) == (self.worker, id);
        let Some(source) = source.filter(is_here) else { return };
        // It can always be written. Nothing was queued before it.
        let Ok(text) = serde_json::to_string(&Reply::Stream) else { return };
        send_to_source(now, endpoint, (id, source.reports), text);
    }

    /// A source begins, or comes back; or it waits for the place of another.
    pub(crate) fn publish(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        claim: Claim,
    ) -> Result<(), Close> {
        let Claim { name, label, config, flow, .. } = &claim;
        self.relay_rest(now, endpoint, name, (label, config));
        // Reports of a stream whose place this one takes.
        let part = self.streams.get(name).map(|stream| (stream.key.clone(), self.part(stream)));
        let hub = Arc::clone(&self.hub);
        let mut state = hub.lock();
        let has_room = state.streams.len() < self.options.streams;
        let is_same = match state.streams.get_mut(name) {
            Some(known) if is_same(known, label, config) => true,
            Some(known) if known.stage == Stage::Live => {
                self.hub.wait(known, Waiting::new(now, (self.worker, id), label.session))?;
                drop(state);
                self.peers.insert(id, Peer::Waiting(Box::new(claim)));
                return Ok(());
            }
            None if !has_room => {
                return Err((CloseReason::Busy, "the relay has as many streams as it may"));
            }
            Some(_) | None => false,
        };
        let label_of_reports = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
        let reports =
            endpoint.connection(id).and_then(|found| found.open_flow(label_of_reports).ok());
        let (worker, connection) = (self.worker, id);
        let source = From { worker, connection, flow: *flow, reports, since: now, base: 0 };
        if is_same {
            hub.replace_source(&mut state, name, source);
        } else {
            // The source of before does not come back: this one takes its place.
            if let Some((key, part)) = part {
                hub.take_part(&mut state, self.worker, &key, part);
            }
            hub.end(&mut state, now, name, false);
            hub.remove(&mut state, name);
            let stream = hub.new_stream(&mut state, (name, *label, config), source);
            state.streams.insert(name.clone(), stream);
        }
        if let Some(stream) = state.streams.get(name).filter(|stream| !stream.has_ended()) {
            let seen = Box::new((stream.label, stream.config.clone()));
            hub.send_all(&state, &Message::Begun(Arc::clone(&stream.key), seen));
            state.tell(RelayEvent::Published { stream: name.clone(), remote: endpoint.remote(id) });
        }
        drop(state);
        self.peers.insert(id, Peer::Source(claim.name));
        self.handle_messages(now, endpoint);
        Ok(())
    }

    /// Passes on what has arrived of a source that comes back, before it does: it was acknowledged, and is not sent
    /// again. Another thread passes on what it has before it acknowledges it.
    fn relay_rest(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        name: &Option<StreamName>,
        (label, config): (&Label, &FlowConfig),
    ) {
        let before = {
            let state = self.hub.lock();
            let known = state.streams.get(name).filter(|known| is_same(known, label, config));
            known.and_then(|known| known.source).filter(|before| before.worker == self.worker)
        };
        if let Some(before) = before {
            self.relay_all(now, endpoint, (before.connection, before.flow), name);
        }
    }

    /// Viewers that wait for this stream get it.
    pub(crate) fn start_waiting(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        name: &Option<StreamName>,
    ) {
        let waits = |peer: &Peer| match peer {
            Peer::Viewer(viewer) => viewer.stream == *name && viewer.watching.is_none(),
            _ => false,
        };
        let waiting: Vec<ConnectionId> =
            self.peers.iter().filter(|(_, peer)| waits(peer)).map(|(id, _)| *id).collect();
        for viewer in waiting {
            self.start(now, endpoint, viewer, name);
        }
    }

    /// Passes on all that a source has sent.
    pub(crate) fn relay_all(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        (id, flow): (ConnectionId, FlowId),
        name: &Option<StreamName>,
    ) {
        while let Some(delivery) =
            endpoint.connection(id).and_then(|connection| connection.receive(flow))
        {
            if let Delivery::Unit(unit) = delivery {
                self.relay_unit(now, endpoint, name, (id, flow, unit));
            }
        }
    }

    /// Passes on a unit of a stream's source to all threads.
    fn relay_unit(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        name: &Option<StreamName>,
        (id, flow, unit): (ConnectionId, FlowId, Unit),
    ) {
        if self.hub.lacks() > 0 {
            self.let_go();
            self.handle_messages(now, endpoint);
        }
        if self.hub.lacks() > 0 {
            self.hub.search();
            self.handle_messages(now, endpoint);
        }
        self.publish_unit(now, name, (id, flow, unit));
        self.handle_messages(now, endpoint);
    }

    /// All threads let go of what they keep for new viewers, of the streams of which most is kept first, until
    /// memory is no longer short.
    fn let_go(&self) {
        let mut kept: Vec<&Stream> =
            self.streams.values().filter(|stream| stream.kept() > 0).collect();
        kept.sort_unstable_by_key(|stream| Reverse(stream.kept()));
        let (mut state, mut lacks) = (self.hub.lock(), self.hub.lacks());
        for stream in kept {
            if lacks == 0 {
                break;
            }
            self.hub.let_go(&mut state, &stream.key);
            lacks = lacks.saturating_sub(stream.kept());
        }
    }

    fn publish_unit(
        &self,
        now: Time,
        name: &Option<StreamName>,
        (id, flow, unit): (ConnectionId, FlowId, Unit),
    ) {
        let mut state = self.hub.lock();
        let Some(stream) = state.streams.get_mut(name) else { return };
        let is_this = |source: &From| {
            (source.worker, source.connection, source.flow) == (self.worker, id, flow)
        };
        let Some(From { base, .. }) = stream.source.filter(is_this) else { return };
        // A source that comes back for the last report may not know that all has come.
        if stream.has_ended() {
            return;
        }
        let key = Arc::clone(&stream.key);
        stream.units += 1;
        stream.bytes += unit.data.len() as u64;
        let is_reliable = stream.config.reliability == ontempo_transport::Reliability::Full;
        let sent = unit.sent.unwrap_or(unit.arrived);
        let deadline = unit.lifetime.filter(|_| !is_reliable).map(|left| sent + left);
        if deadline.is_some_and(|deadline| deadline <= now) {
            stream.late += 1;
            return;
        }
        if self.hub.is_full() {
            stream.refused += 1;
            // Once: what waits for a thread that stands still is bounded.
            if !std::mem::replace(&mut stream.is_lacking, true) {
                self.hub.send_all(&state, &Message::Lacking(key));
            }
            return;
        }
        (stream.is_lacking, stream.is_kept) = (false, true);
        let relayed = Relayed {
            number: base.saturating_add(unit.id),
            data: self.hub.account.count(unit.data),
            deadline,
            priority: unit.priority,
            continues: unit.continues.map(|on| base.saturating_add(on)),
            depends_on: unit.depends_on.iter().map(|on| base.saturating_add(*on)).collect(),
        };
        stream.next = stream.next.max(relayed.number + 1);
        self.hub.send_all(&state, &Message::Unit(key, relayed));
    }

    /// A flow has ended: of a source, its stream has.
    pub(crate) fn on_flow_ended(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        id: ConnectionId,
        flow: FlowId,
    ) {
        let Some(Peer::Source(name)) = self.peers.get(&id) else {
            self.read(now, endpoint, id, flow);
            return;
        };
        let name = name.clone();
        self.relay_all(now, endpoint, (id, flow), &name);
        let mut state = self.hub.lock();
        let known = state.streams.get(&name);
        if known.is_some_and(|stream| stream.is_from(self.worker, id)) {
            self.hub.end(&mut state, now, &name, true);
        }
        drop(state);
        self.handle_messages(now, endpoint);
    }

    /// The source of a stream is gone.
    pub(crate) fn source_lost(&self, now: Time, id: ConnectionId, name: &Option<StreamName>) {
        let mut state = self.hub.lock();
        let known = state.streams.get_mut(name);
        let Some(stream) = known.filter(|stream| stream.is_from(self.worker, id)) else { return };
        stream.source = None;
        if stream.stage == Stage::Live {
            stream.stage = Stage::Away(now);
            let waiting = stream.waiting.take();
            state.tell(RelayEvent::Away(name.clone()));
            if let Some(waiting) = waiting {
                self.hub.send(waiting.worker, Message::Follow(waiting.connection));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use bytes::Bytes;
    use ontempo_foundation::Duration;

    use super::*;
    use crate::options::RelayOptions;
    use crate::round::tests::ids;

    /// Units that may wait for a thread.
    const MOST: u64 = 4_096;

    #[test]
    fn what_waits_for_a_thread_that_stands_still_is_bounded() {
        let threads = NonZeroU8::new(2).expect("some");
        let relay =
            Relay::parts(RelayOptions { threads, ..RelayOptions::default() }, 1).swap_remove(0);
        let (id, flow) = (ids(1)[0], FlowId { outgoing: false, number: 0 });
        let label = Label::of(1, Duration::from_millis(500), Duration::ZERO);
        let (worker, reports, since) = (0, None, Time::ZERO);
        let source = From { worker, connection: id, flow, reports, since, base: 0 };
        let mut state = relay.hub.lock();
        let of = (&None, label, &FlowConfig::default());
        let stream = relay.hub.new_stream(&mut state, of, source);
        state.streams.insert(None, stream);
        drop(state);
        let publish = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                let unit = Unit {
                    id: number,
                    data: Bytes::new(),
                    sent: None,
                    arrived: Time::ZERO,
                    lifetime: None,
                    priority: 0,
                    continues: None,
                    depends_on: Vec::new(),
                    missing: Vec::new(),
                };
                relay.publish_unit(Time::ZERO, &None, (id, flow, unit));
            }
        };
        let waiting = |worker| std::iter::from_fn(|| relay.hub.inbox(worker).next()).count() as u64;
        publish(0..MOST + 10_000);
        assert_eq!([waiting(0), waiting(1)], [MOST + 1; 2]);
        // It goes on, and stands still again.
        publish(0..MOST + 10);
        assert_eq!([waiting(0), waiting(1)], [MOST + 1; 2]);
        let state = relay.hub.lock();
        let stream = state.streams.get(&None).expect("a stream");
        assert_eq!((stream.units, stream.refused), (2 * MOST + 10_010, 10_010));
    }
}
