//! What a thread does with messages.

use ontempo_foundation::Time;
use ontempo_session::StreamName;
use ontempo_transport::{CloseReason, ConnectionId, Endpoint, FlowId};

use crate::inbox::Message;
use crate::relay::{Peer, Relay};
use crate::stream::Stream;

impl Relay {
    /// Handles the messages of the threads, of itself, too.
    pub(crate) fn handle_messages(&mut self, now: Time, endpoint: &mut Endpoint) {
        // What is sent meanwhile has its turn below.
        if std::mem::replace(&mut self.is_handling, true) {
            return;
        }
        while let Some(message) = self.inbox().next() {
            self.on_message(now, endpoint, message);
        }
        self.is_handling = false;
    }

    fn on_message(&mut self, now: Time, endpoint: &mut Endpoint, message: Message) {
        match message {
            Message::Begun(key, seen) => {
                let (name, (label, config)) = (key.name.clone(), *seen);
                let new = || Stream::new(key, label, config);
                self.streams.entry(name.clone()).or_insert_with(new);
                self.start_waiting(now, endpoint, &name);
            }
            Message::Unit(key, unit) => {
                if let Some(stream) = self.streams.get_mut(&key.name) {
                    stream.keep(&unit, self.options.kept(stream.is_reliable()));
                    stream.round.push(unit);
                }
            }
            Message::Lacking(key) => self.on_lacking(now, endpoint, &key.name),
            Message::LetGo(key) => {
                if let Some(stream) = self.streams.get_mut(&key.name) {
                    stream.clear();
                }
            }
            Message::Ended(key) => self.on_ended(now, endpoint, &key.name),
            Message::Due(key) => self.count_last(&key.name),
            Message::Removed(key) => self.on_removed(now, endpoint, &key.name),
            Message::Retired(connection) => self.leave(now, connection),
            Message::Contested => self.contests_due = now,
            Message::Refused(connection) => self.refuse_waiting(now, endpoint, connection),
            Message::Follow(connection) => self.following.push(connection),
            Message::Report(connection, reports, text) => {
                self.on_last_report(now, endpoint, (connection, reports), &text);
            }
            Message::Measure => {
                let most = self.holds_most(now, endpoint);
                self.hub.take_most(self.worker, most);
            }
            Message::Relieve(viewer) => {
                if matches!(self.peers.get(&viewer), Some(Peer::Viewer(_))) {
                    let close = (CloseReason::Overloaded, "you hold most of the memory");
                    self.close(now, endpoint, viewer, close);
                }
                self.hub.relieved();
            }
        }
    }

    /// A unit goes to nobody: viewers that must get all cannot go on.
    fn on_lacking(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        stream.miss();
        if !stream.is_reliable() {
            return;
        }
        for id in stream.viewers.clone() {
            let sentence = "the relay had no room for a unit of a stream that must arrive whole";
            self.close(now, endpoint, id, (CloseReason::Overloaded, sentence));
        }
    }

    /// A stream has ended: viewers get the rest, and report.
    fn on_ended(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        self.offer_all(now, endpoint);
        let Some(stream) = self.streams.get_mut(name) else { return };
        stream.has_ended = true;
        stream.clear();
        for id in &stream.viewers {
            if let (Some(Peer::Viewer(viewer)), Some(connection)) =
                (self.peers.get(id), endpoint.connection(*id))
                && let Some(watching) = &viewer.watching
            {
                connection.finish_flow(watching.flow);
            }
        }
        self.settle(now, endpoint, name);
    }

    /// Counts what the viewers of a stream that has ended have reported, once all have.
    pub(crate) fn settle(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        let Some(stream) = self.streams.get(name).filter(|stream| stream.has_ended) else { return };
        let is_done = |id: &ConnectionId| match self.peers.get(id) {
            Some(Peer::Viewer(viewer)) => viewer.is_done(),
            _ => true,
        };
        if stream.viewers.iter().all(is_done) {
            self.count_last(name);
            self.handle_messages(now, endpoint);
        }
    }

    /// A stream is removed, and its viewers with it.
    fn on_removed(&mut self, now: Time, endpoint: &mut Endpoint, name: &Option<StreamName>) {
        let Some(stream) = self.streams.remove(name) else { return };
        for id in stream.viewers {
            if let Some(connection) = endpoint.connection(id) {
                connection.close(now, "the stream has ended");
            }
            self.forget(now, id);
        }
    }

    /// The last report for a source.
    fn on_last_report(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        (id, reports): (ConnectionId, Option<FlowId>),
        text: &str,
    ) {
        crate::source::send_to_source(now, endpoint, (id, reports), text.to_owned());
        if let (Some(connection), Some(reports)) = (endpoint.connection(id), reports) {
            connection.finish_flow(reports);
        }
        self.leave(now, id);
    }

    /// Nothing more is expected of a source than its end.
    fn leave(&mut self, now: Time, id: ConnectionId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            *peer = Peer::Leaving(now);
        }
    }

    /// The viewer here that holds most, and what it holds, bytes; `None` if none holds anything.
    fn holds_most(&self, now: Time, endpoint: &mut Endpoint) -> Option<(u64, ConnectionId)> {
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
        most
    }
}
