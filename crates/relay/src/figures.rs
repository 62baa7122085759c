//! What a relay counts, and what viewers report.

use ontempo_foundation::Time;
use ontempo_session::message::Report;
use ontempo_session::{StreamName, Viewers};
use ontempo_transport::{ConnectionId, Endpoint};

use crate::hub::{Part, Published};
use crate::relay::{Peer, Relay};
use crate::stream::{Stage, Stream};

/// Figures of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStatistics {
    /// Its name, if it has one.
    pub name: Option<StreamName>,
    /// A source is connected.
    pub is_live: bool,
    /// Units and bytes that its source has sent, also those that no viewer gets.
    pub units: u64,
    /// See `units`.
    pub bytes: u64,
    /// Units that came after their deadline, which no viewer gets.
    pub late: u64,
    /// Units for which there was no room: in memory, or among those that wait for a thread.
    pub refused: u64,
    /// Bytes kept for new viewers.
    pub kept: u64,
    /// Its viewers.
    pub viewers: Viewers,
}

/// Figures of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayStatistics {
    /// Viewers, also those that wait for a stream.
    pub viewers: u64,
    /// Bytes of units that viewers hold or that are kept for new ones, each counted once.
    pub held: u64,
    /// Units that were not sent to a viewer, because its flow was full or what they need was left
    /// out: of all viewers that are connected to this thread.
    pub left_out: u64,
    /// UDP payload received and sent, bytes, by this thread. The relay's driver counts it.
    pub bytes_received: u64,
    /// See `bytes_received`.
    pub bytes_sent: u64,
    /// Its streams, by name.
    pub streams: Vec<StreamStatistics>,
}

impl Relay {
    /// What the viewers of a stream have reported here.
    pub(crate) fn part(&self, stream: &Stream) -> Part {
        let reported = |id: &ConnectionId| match self.peers.get(id)? {
            Peer::Viewer(viewer) => viewer.report,
            _ => None,
        };
        let mut reports: Vec<Report> = stream.viewers.iter().filter_map(reported).collect();
        reports.extend(&stream.done);
        let viewers = stream.viewers.len() as u64 + stream.done.len() as u64;
        Part { viewers, reports, is_last: false }
    }

    /// Shares what the viewers here have reported so far with the other threads.
    fn share_parts(&self) {
        let counting = self.streams.values().filter(|stream| !stream.is_counted);
        let parts: Vec<_> = counting.map(|stream| (&stream.key, self.part(stream))).collect();
        let mut state = self.hub.lock();
        for (key, part) in parts {
            self.hub.take_part(&mut state, self.worker, key, part);
        }
    }

    /// Tells sources how their viewers fare.
    pub(crate) fn report(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.share_parts();
        let is_here = |stream: &&Published| {
            stream.stage == Stage::Live
                && stream.source.is_some_and(|source| source.worker == self.worker)
        };
        let reports: Vec<_> = {
            let state = self.hub.lock();
            let here = state.streams.values().filter(is_here);
            here.filter_map(|stream| Some((stream.source?, stream.summary()))).collect()
        };
        for (source, report) in reports {
            // It can always be written.
            let Ok(text) = serde_json::to_string(&report) else { continue };
            crate::source::send_to_source(now, endpoint, (source.connection, source.reports), text);
        }
    }

    /// Counts a last time what viewers of a stream that has ended have reported here, once all have or
    /// their time is over.
    pub(crate) fn count_last(&mut self, stream: &Option<StreamName>) {
        let Some(stream) = self.streams.get(stream).filter(|stream| !stream.is_counted) else {
            return;
        };
        let (key, part) = (stream.key.clone(), Part { is_last: true, ..self.part(stream) });
        if let Some(stream) = self.streams.get_mut(&key.name) {
            stream.is_counted = true;
        }
        self.hub.take_part(&mut self.hub.lock(), self.worker, &key, part);
    }

    /// Figures: of all threads, with what the viewers of the others have reported up to a second ago, unless the
    /// field says otherwise.
    pub fn statistics(&self) -> RelayStatistics {
        let counts = self.counts();
        let kept = |name: &_| self.streams.get(name).map_or(0, Stream::kept);
        let of = |(name, stream): (&Option<StreamName>, &Published)| StreamStatistics {
            name: name.clone(),
            is_live: stream.stage == Stage::Live,
            units: stream.units,
            bytes: stream.bytes,
            late: stream.late,
            refused: stream.refused,
            kept: kept(name),
            viewers: stream.summary().viewers,
        };
        RelayStatistics { streams: self.hub.lock().streams.iter().map(of).collect(), ..counts }
    }

    /// Figures without those of streams, to which it adds what the viewers here have reported.
    pub(crate) fn counts(&self) -> RelayStatistics {
        self.share_parts();
        let left_out = |peer: &Peer| match peer {
            Peer::Viewer(viewer) => viewer.left_out,
            _ => 0,
        };
        RelayStatistics {
            viewers: self.hub.viewers(),
            held: self.hub.account.held(),
            left_out: self.peers.values().map(left_out).sum(),
            ..RelayStatistics::default()
        }
    }
}
