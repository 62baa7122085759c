//! What all threads of a relay share: its streams, the places of its viewers, and its memory.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use ontempo_foundation::{RandomStream, Time};
use ontempo_session::message::{Label, Report};
use ontempo_session::{RelayReport, StreamName};
use ontempo_transport::{CloseReason, ConnectionId, FlowConfig};

use crate::contest::Waiting;
use crate::held::Account;
use crate::inbox::{Inbox, Key, Message, Named, lock};
use crate::options::RelayOptions;
use crate::relay::RelayEvent;
use crate::stream::{From, Stage, report_limit};
use crate::viewer::Close;

/// Part of the memory that is left when threads begin to look for the viewer that holds most: until it is
/// closed, by another thread than that of the source, units still come.
const SPARE: u64 = 16;

/// Events kept for a program that does not take them.
const MAX_EVENTS: usize = 256;

/// Shared by all threads.
#[derive(Debug)]
pub(crate) struct Hub {
    options: RelayOptions,
    pub(crate) account: Account,
    state: Mutex<State>,
    inboxes: Vec<Inbox>,
}

/// What the threads know of a stream together.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) key: Key,
    /// The source's session: a secret of the source.
    pub(crate) session: u128,
    pub(crate) label: Label,
    pub(crate) config: FlowConfig,
    pub(crate) stage: Stage,
    pub(crate) source: Option<From>,
    /// Another source that waits for the place of this one; of several the first.
    pub(crate) waiting: Option<Waiting>,
    /// The number above those of all units so far.
    pub(crate) next: u64,
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    /// Units that came after their deadline, and units for which there was no room.
    pub(crate) late: u64,
    pub(crate) refused: u64,
    /// There was no room for the last unit; all threads know it.
    pub(crate) is_lacking: bool,
    /// Threads keep something for new viewers, or are about to.
    pub(crate) is_kept: bool,
    /// What the viewers of each thread have reported.
    pub(crate) parts: Vec<Part>,
    /// The time of viewers for their reports is over.
    is_due: bool,
}

/// What the viewers of a thread have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) viewers: u64,
    pub(crate) reports: Vec<Report>,
    /// Nothing more comes.
    pub(crate) is_last: bool,
}

/// The search for the viewer that holds most.
#[derive(Debug)]
struct Search {
    /// Threads that have not answered.
    awaited: usize,
    most: Option<(u64, usize, ConnectionId)>,
}

/// What the hub's lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) streams: BTreeMap<Option<StreamName>, Published>,
    viewers: usize,
    hosts: BTreeMap<IpAddr, usize>,
    random: RandomStream,
    search: Option<Search>,
    streams_begun: u64,
    /// In the order in which it happened, whatever the threads.
    events: VecDeque<RelayEvent>,
}

impl State {
    /// Something has happened that the program may want to know.
    pub(crate) fn tell(&mut self, event: RelayEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }

    /// What has happened first of all that was not yet taken.
    pub(crate) fn next_event(&mut self) -> Option<RelayEvent> {
        self.events.pop_front()
    }
}

impl Published {
    /// The report of its viewers.
    pub(crate) fn summary(&self) -> RelayReport {
        let count = self.parts.iter().map(|part| part.viewers).sum();
        let mut reports: Vec<Report> =
            self.parts.iter().flat_map(|part| part.reports.iter().copied()).collect();
        RelayReport::of(count, &mut reports)
    }

    /// True if nothing more is passed on of it.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    /// True if this is its source.
    pub(crate) fn is_from(&self, worker: usize, connection: ConnectionId) -> bool {
        let is_this = |from: From| (from.worker, from.connection) == (worker, connection);
        self.source.is_some_and(is_this)
    }
}

impl Hub {
    pub(crate) fn new(options: RelayOptions, seed: u64) -> Self {
        let state = State {
            streams: BTreeMap::new(),
            viewers: 0,
            hosts: BTreeMap::new(),
            random: RandomStream::new(seed, "sessions of a relay"),
            search: None,
            streams_begun: 0,
            events: VecDeque::new(),
        };
        let inboxes = (0..options.threads.get()).map(|_| Inbox::default()).collect();
        Self { options, account: Account::default(), state: Mutex::new(state), inboxes }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn inbox(&self, worker: usize) -> &Inbox {
        &self.inboxes[worker]
    }

    /// Sends to a thread. What is for several threads, or must not overtake it, is sent under the lock.
    pub(crate) fn send(&self, worker: usize, message: Message) {
        self.inboxes[worker].post(message);
    }

    /// Tells all threads, the asking one, too.
    pub(crate) fn send_all(&self, _: &State, message: &Message) {
        (0..self.inboxes.len()).for_each(|worker| self.send(worker, message.clone()));
    }

    /// Takes a viewer's place.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn admit(&self, host: IpAddr) -> Result<(), Close> {
        let mut state = self.lock();
        let of_host = state.hosts.get(&host).copied().unwrap_or(0);
        if state.viewers >= self.options.viewers {
            return Err((CloseReason::Refused, "the relay has as many viewers as it may"));
        }
        if of_host >= self.options.viewers_of_host {
            return Err((CloseReason::Refused, "your address has as many viewers as it may"));
        }
        state.viewers += 1;
        state.hosts.insert(host, of_host + 1);
        Ok(())
    }

    /// A viewer's place is free again.
    pub(crate) fn viewer_gone(&self, host: IpAddr) {
        let mut state = self.lock();
        state.viewers -= 1;
        if let Some(count) = state.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                state.hosts.remove(&host);
            }
        }
    }

    /// Viewers of all threads.
    pub(crate) fn viewers(&self) -> u64 {
        self.lock().viewers as u64
    }

    /// A stream that begins, whose number is new and whose session viewers may see.
    pub(crate) fn new_stream(
        &self,
        state: &mut State,
        (name, label, config): (&Option<StreamName>, Label, &FlowConfig),
        source: From,
    ) -> Published {
        state.streams_begun += 1;
        // The source's session would let a viewer with its token take its place.
        let mut next = || u128::from(state.random.next_u64());
        let session = next() << 64 | next();
        Published {
            key: Arc::new(Named { name: name.clone(), number: state.streams_begun }),
            session: label.session,
            label: Label { session, ..label },
            config: FlowConfig { label: String::new(), ..config.clone() },
            stage: Stage::Live,
            source: Some(source),
            waiting: None,
            next: 0,
            units: 0,
            bytes: 0,
            late: 0,
            refused: 0,
            is_lacking: false,
            is_kept: false,
            parts: vec![Part::default(); self.inboxes.len()],
            is_due: false,
        }
    }

    /// The source of a stream has come again: it continues it, or waits for the last report if it had ended it.
    pub(crate) fn replace_source(
        &self,
        state: &mut State,
        name: &Option<StreamName>,
        source: From,
    ) {
        let Some(stream) = state.streams.get_mut(name) else { return };
        if !stream.has_ended() {
            stream.stage = Stage::Live;
        }
        if let Some(before) = stream.source.replace(From { base: stream.next, ..source }) {
            self.send(before.worker, Message::Retired(before.connection));
        }
        if let Some(waiting) = stream.waiting.take() {
            self.send(waiting.worker, Message::Refused(waiting.connection));
        }
    }

    /// Takes what the viewers of a thread have reported; a stream of which all have, and which has ended,
    /// is removed.
    pub(crate) fn take_part(&self, state: &mut State, worker: usize, key: &Key, part: Part) {
        let Some(stream) = state.streams.get_mut(&key.name).filter(|stream| stream.key == *key)
        else {
            return;
        };
        stream.parts[worker] = part;
        if stream.parts.iter().all(|part| part.is_last) {
            self.remove(state, &key.name);
        }
    }

    /// Ends a stream, unless it has ended: its viewers get the rest, and report. It is complete if its source
    /// has sent all.
    pub(crate) fn end(
        &self,
        state: &mut State,
        now: Time,
        name: &Option<StreamName>,
        is_complete: bool,
    ) {
        let Some(stream) = state.streams.get_mut(name) else { return };
        if stream.has_ended() {
            return;
        }
        let until = report_limit(now, &stream.label, &stream.config);
        stream.stage = Stage::Ended { until, is_complete };
        if let Some(waiting) = stream.waiting.take() {
            self.send(waiting.worker, Message::Follow(waiting.connection));
        }
        let message = Message::Ended(Arc::clone(&stream.key));
        self.send_all(state, &message);
        state.tell(RelayEvent::Ended(name.clone()));
    }

    /// Removes a stream, and sends its source the last report.
    pub(crate) fn remove(&self, state: &mut State, name: &Option<StreamName>) {
        let Some(stream) = state.streams.remove(name) else { return };
        if let Some(source) = stream.source {
            let mut report = stream.summary();
            report.report.is_final = true;
            let text = serde_json::to_string(&report).unwrap_or_default();
            let report = Message::Report(source.connection, source.reports, text.into());
            self.send(source.worker, report);
        }
        self.send_all(state, &Message::Removed(stream.key));
    }

    /// Ends streams whose source has been away for too long, and the time of viewers for their reports.
    pub(crate) fn look(&self, now: Time) {
        let (mut state, mut ended) = (self.lock(), Vec::new());
        let mut due = Vec::new();
        for (name, stream) in &mut state.streams {
            match stream.stage {
                Stage::Away(since) if now.since(since) >= self.options.away => {
                    ended.push(name.clone());
                }
                Stage::Ended { until, .. } if now >= until && !stream.is_due => {
                    stream.is_due = true;
                    due.push(Message::Due(Arc::clone(&stream.key)));
                }
                _ => {}
            }
        }
        ended.iter().for_each(|name| self.end(&mut state, now, name, false));
        due.iter().for_each(|message| self.send_all(&state, message));
    }

    /// Bytes to be let go of before the next unit: above 0 if the memory is used up, or with several
    /// threads nearly so.
    pub(crate) fn lacks(&self) -> u64 {
        let memory = self.options.memory.get();
        let spare = if self.inboxes.len() > 1 { memory / SPARE } else { 0 };
        self.account.held().saturating_sub(memory - spare)
    }

    /// All threads let go of what they keep of this stream for new viewers.
    pub(crate) fn let_go(&self, state: &mut State, key: &Key) {
        let known = state.streams.get_mut(&key.name).filter(|stream| stream.key == *key);
        // Not once for each thread that finds it kept.
        if known.is_some_and(|stream| std::mem::take(&mut stream.is_kept)) {
            self.send_all(state, &Message::LetGo(Arc::clone(key)));
        }
    }

    /// True if there is no room for a unit.
    pub(crate) fn is_full(&self) -> bool {
        self.account.held() > self.options.memory.get() || self.inboxes.iter().any(Inbox::is_full)
    }

    /// All threads say which of their viewers holds most, unless they are being asked.
    pub(crate) fn search(&self) {
        let mut state = self.lock();
        if state.search.is_none() {
            state.search = Some(Search { awaited: self.inboxes.len(), most: None });
            self.send_all(&state, &Message::Measure);
        }
    }

    /// Of a thread's viewers this one holds most. The last answer decides: by then all threads have let go of
    /// what they were told to before they were asked.
    pub(crate) fn take_most(&self, worker: usize, most: Option<(u64, ConnectionId)>) {
        let mut state = self.lock();
        let Some(search) = &mut state.search else { return };
        let most = most.map(|(held, id)| (held, worker, id));
        search.most = search.most.max(most);
        search.awaited = search.awaited.saturating_sub(1);
        if search.awaited > 0 {
            return;
        }
        match search.most {
            Some((_, worker, id)) if self.lacks() > 0 => self.send(worker, Message::Relieve(id)),
            _ => state.search = None,
        }
    }

    /// The viewer that held most is closed.
    pub(crate) fn relieved(&self) {
        self.lock().search = None;
    }
}
