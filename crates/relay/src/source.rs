//! Sources: what they send goes to all viewers of their stream.

use ontempo_foundation::Time;
use ontempo_session::file::Reply;
use ontempo_session::message::{Label, REPORTS};
use ontempo_session::{RelayReport, StreamName};
use ontempo_transport::{
    CloseReason, ConnectionId, Delivery, Endpoint, FlowConfig, FlowId, Outgoing, Unit,
};

use crate::relay::{Peer, Relay, RelayEvent};
use crate::stream::{From, Relayed, Stage, Stream};
use crate::viewer::Close;

/// Sends a report to a stream's source.
pub(crate) fn tell(now: Time, endpoint: &mut Endpoint, stream: &Stream, report: &RelayReport) {
    let Some(From { connection, reports: Some(flow), .. }) = stream.source else { return };
    let (Some(connection), Ok(text)) =
        (endpoint.connection(connection), serde_json::to_vec(report))
    else {
        return;
    };
    // A full queue: the next report has the sums, too.
    let _ = connection.send(now, flow, Outgoing { data: text.into(), ..Outgoing::default() });
}

/// Answers the source that offers a file: it is to send a stream.
pub(crate) fn want_stream(now: Time, endpoint: &mut Endpoint, stream: &Stream) {
    let Some(From { connection, reports: Some(flow), .. }) = stream.source else { return };
    let (Some(connection), Ok(text)) =
        (endpoint.connection(connection), serde_json::to_vec(&Reply::Stream))
    else {
        return;
    };
    // Nothing was queued before it.
    let _ = connection.send(now, flow, Outgoing { data: text.into(), ..Outgoing::default() });
}

impl Relay {
    /// A source begins, or comes back.
    pub(crate) fn publish(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        (id, flow): (ConnectionId, FlowId),
        (name, label, config): (Option<StreamName>, Label, &FlowConfig),
    ) -> Result<(), Close> {
        let known = self.streams.get(&name);
        let is_same = known.is_some_and(|stream| {
            let is_over = matches!(stream.stage, Stage::Ended(_));
            stream.session == label.session
                && !is_over
                && stream.config.order == config.order
                && stream.config.reliability == config.reliability
        });
        match known {
            Some(_) if is_same => {}
            Some(Stream { stage: Stage::Live, .. }) => {
                return Err((CloseReason::Busy, "another source sends this stream"));
            }
            Some(_) => {
                // The source of before does not come back: this one takes its place.
                self.end(now, endpoint, &name);
                self.remove(now, endpoint, &name);
            }
            None if self.streams.len() >= self.options.streams => {
                return Err((CloseReason::Busy, "the relay has as many streams as it may"));
            }
            None => {}
        }
        if let Some(before) = self.streams.get(&name).and_then(|stream| stream.source) {
            // What has arrived was acknowledged: the source does not send it again.
            self.relay_all(now, endpoint, (before.connection, before.flow), &name);
            self.peers.insert(before.connection, Peer::Leaving(now));
        }
        let label_of_reports = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
        let reports =
            endpoint.connection(id).and_then(|found| found.open_flow(label_of_reports).ok());
        let base = self.streams.get(&name).map_or(0, |stream| stream.next);
        let source = From { connection: id, flow, reports, base };
        if is_same {
            if let Some(stream) = self.streams.get_mut(&name) {
                (stream.source, stream.stage) = (Some(source), Stage::Live);
            }
        } else {
            // The source's session would let a viewer with its token take its place.
            let session =
                u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
            let seen = Label { session, ..label };
            let config = FlowConfig { label: String::new(), ..config.clone() };
            self.streams.insert(name.clone(), Stream::new(label.session, seen, config, source));
        }
        self.peers.insert(id, Peer::Source(name.clone()));
        self.start_waiting(now, endpoint, &name);
        let remote = endpoint.remote(id);
        self.emit(RelayEvent::Published { stream: name, remote });
        Ok(())
    }

    /// Viewers that wait for this stream get it.
    fn start_waiting(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
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
        let source = self.streams.get(name).and_then(|stream| stream.source);
        let Some(source) = source.filter(|source| source.connection == id && source.flow == flow)
        else {
            return;
        };
        while let Some(delivery) =
            endpoint.connection(id).and_then(|connection| connection.receive(flow))
        {
            if let Delivery::Unit(unit) = delivery {
                self.relay_unit(now, endpoint, name, (source.base, unit));
            }
        }
    }

    /// Passes on a unit.
    fn relay_unit(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        name: &Option<StreamName>,
        (base, unit): (u64, Unit),
    ) {
        let is_short = self.account.held() > self.options.memory.get();
        if is_short && !self.relieve(now, endpoint) {
            if let Some(stream) = self.streams.get_mut(name) {
                stream.refused += 1;
                stream.clear();
            }
            return;
        }
        let Some(stream) = self.streams.get_mut(name) else { return };
        stream.units += 1;
        stream.bytes += unit.data.len() as u64;
        let sent = unit.sent.unwrap_or(unit.arrived);
        let deadline = unit.lifetime.filter(|_| !stream.is_reliable()).map(|left| sent + left);
        if deadline.is_some_and(|deadline| deadline <= now) {
            stream.late += 1;
            return;
        }
        let relayed = Relayed {
            number: base.saturating_add(unit.id),
            data: self.account.count(unit.data),
            deadline,
            priority: unit.priority,
            continues: unit.continues.map(|on| base.saturating_add(on)),
            depends_on: unit.depends_on.iter().map(|on| base.saturating_add(*on)).collect(),
        };
        stream.keep(&relayed, self.options.start.get());
        stream.round.push(relayed);
    }

    /// Closes the viewer that holds most; false if none holds anything.
    fn relieve(&mut self, now: Time, endpoint: &mut Endpoint) -> bool {
        let mut most: Option<(u64, ConnectionId)> = None;
        for (id, peer) in &self.peers {
            let Peer::Viewer(viewer) = peer else { continue };
            let Some(flow) = viewer.watching.as_ref().map(|watching| watching.flow) else {
                continue;
            };
            let held = endpoint
                .connection(*id)
                .and_then(|connection| connection.send_statistics(now, flow))
                .map_or(0, |statistics| statistics.held_bytes);
            if held > most.map_or(0, |(most, _)| most) {
                most = Some((held, *id));
            }
        }
        let Some((_, id)) = most else { return false };
        self.close(now, endpoint, id, (CloseReason::Overloaded, "you hold most of the memory"));
        self.account.held() <= self.options.memory.get()
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
        self.end(now, endpoint, &name);
    }

    /// The source of a stream is gone.
    pub(crate) fn source_lost(&mut self, now: Time, id: ConnectionId, name: &Option<StreamName>) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        if stream.source.is_none_or(|source| source.connection != id) {
            return;
        }
        stream.source = None;
        if stream.stage == Stage::Live {
            stream.stage = Stage::Away(now);
            self.emit(RelayEvent::Away(name.clone()));
        }
    }

    /// Ends a stream: viewers get the rest, and report.
    pub(crate) fn end(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        self.offer_all(now, endpoint);
        let Some(stream) = self.streams.get_mut(name) else { return };
        if matches!(stream.stage, Stage::Ended(_)) {
            return;
        }
        stream.stage = Stage::Ended(stream.report_limit(now));
        stream.clear();
        for id in &stream.viewers {
            if let (Some(Peer::Viewer(viewer)), Some(connection)) =
                (self.peers.get(id), endpoint.connection(*id))
                && let Some(watching) = &viewer.watching
            {
                connection.finish_flow(watching.flow);
            }
        }
        self.emit(RelayEvent::Ended(name.clone()));
        self.settle(now, endpoint, name);
    }

    /// Removes a stream that has ended, once its viewers have reported or their time is over.
    pub(crate) fn settle(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        let Some(stream) = self.streams.get(name) else { return };
        let Stage::Ended(limit) = stream.stage else { return };
        let is_done = |id: &ConnectionId| match self.peers.get(id) {
            Some(Peer::Viewer(viewer)) => viewer.is_done(),
            _ => true,
        };
        if now >= limit || stream.viewers.iter().all(is_done) {
            self.remove(now, endpoint, name);
        }
    }

    /// Tells the source the last report, and removes the stream and its viewers.
    fn remove(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        let Some(stream) = self.streams.get(name) else { return };
        let report = self.last_report(stream);
        tell(now, endpoint, stream, &report);
        let Some(stream) = self.streams.remove(name) else { return };
        if let Some(source) = stream.source {
            if let (Some(connection), Some(reports)) =
                (endpoint.connection(source.connection), source.reports)
            {
                connection.finish_flow(reports);
            }
            self.peers.insert(source.connection, Peer::Leaving(now));
        }
        for id in stream.viewers {
            if let Some(connection) = endpoint.connection(id) {
                connection.close(now, "the stream has ended");
            }
            self.forget(now, id);
        }
    }
}
