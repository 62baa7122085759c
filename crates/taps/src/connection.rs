//! A connection: messages in both directions, and its end (RFC 9622, sections 8 to 10).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration as Wall, Instant};

use bytes::Bytes;
use ontempo_transport::live::{Error, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, Delivery, FlowConfig};

use crate::error::{Aborted, SendError};
use crate::events::Events;
use crate::group::Group;
use crate::message::{Message, MessageProperties};

/// The close code of an abort: the first that is a program's own.
const ABORTED: u64 = 256;

/// How long [`Connection::close`] waits for the peer's end.
const LINGER: Wall = Wall::from_secs(5);

/// How long a wait of [`Connection::close`] lasts before the end of the carrier is looked for.
const LOOK: Wall = Wall::from_millis(50);

/// The property connState (RFC 9622, section 8.1.11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// It carries messages.
    Established,
    /// [`Connection::close`] has begun.
    Closing,
    /// It has ended.
    Closed,
}

/// Messages to and from a peer; one of a group over one connection of QUIC. Several threads may use
/// it. Dropping it ends what it sends; the group ends with its last connection.
pub struct Connection {
    pub(crate) group: Arc<Group>,
    number: u64,
    config: FlowConfig,
    sending: OnceLock<SendFlow>,
    /// Held while the flow is opened, which may wait.
    opening: Mutex<()>,
    is_closing: AtomicBool,
    has_final: AtomicBool,
}

impl Connection {
    /// Connection 0 of a group.
    pub(crate) fn first(group: Arc<Group>) -> Self {
        Self::of(group, 0)
    }

    fn of(group: Arc<Group>, number: u64) -> Self {
        let config = group.transport.flow(number);
        Self {
            group,
            number,
            config,
            sending: OnceLock::new(),
            opening: Mutex::new(()),
            is_closing: AtomicBool::new(false),
            has_final: AtomicBool::new(false),
        }
    }

    /// Its number in the group; the same at both ends.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The property connState.
    pub fn state(&self) -> ConnectionState {
        if self.group.carrier.is_closed().is_some() {
            return ConnectionState::Closed;
        }
        match self.is_closing.load(Ordering::Relaxed) {
            true => ConnectionState::Closing,
            false => ConnectionState::Established,
        }
    }

    /// The property canSend.
    pub fn can_send(&self) -> bool {
        let is_open = self.state() == ConnectionState::Established;
        is_open && !self.has_final.load(Ordering::Relaxed) && self.group.transport.ways().0
    }

    /// The property canReceive.
    pub fn can_receive(&self) -> bool {
        self.state() != ConnectionState::Closed && self.group.transport.ways().1
    }

    /// The peer's address now: it may have moved.
    pub fn remote(&self) -> SocketAddr {
        self.group.carrier.remote_now().unwrap_or_else(|| self.group.carrier.remote())
    }

    /// The address of this side.
    pub fn local(&self) -> SocketAddr {
        self.group.carrier.local()
    }

    /// Another connection of the same group: Clone (RFC 9622, section 7.4).
    ///
    /// # Errors
    /// It is closing or closed.
    pub fn clone_connection(&self) -> Result<Self, Aborted> {
        match self.state() {
            ConnectionState::Established => Ok(Self::of(Arc::clone(&self.group), self.group.add())),
            state => Err(Aborted(format!("a connection cannot be cloned once it is {state:?}"))),
        }
    }

    /// Waits for the next connection that the peer adds to this group (the event
    /// ConnectionReceived); `None` at its end.
    pub fn cloned(&self) -> Option<Self> {
        self.added(None).flatten()
    }

    /// As [`cloned`](Self::cloned); `None` after `limit`.
    pub fn cloned_within(&self, limit: Wall) -> Option<Option<Self>> {
        self.added(Some(limit))
    }

    fn added(&self, limit: Option<Wall>) -> Option<Option<Self>> {
        let number = self.group.begun(limit)?;
        Some(number.map(|number| Self::of(Arc::clone(&self.group), number)))
    }

    /// The flow of its messages, opened with the first of them.
    fn opened(&self) -> Result<&SendFlow, Error> {
        let guard = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flow) = self.sending.get() {
            return Ok(flow);
        }
        let opened = self.group.carrier.open_flow(self.config.clone())?;
        let flow = self.sending.get_or_init(|| opened);
        drop(guard);
        Ok(flow)
    }

    /// Sends a message; waits while the send queue is full: the return is the event Sent. Returns
    /// its number this way, by which [`Event::Expired`](crate::Event::Expired) names it.
    ///
    /// # Errors
    /// It cannot be sent, or has a property that is not there.
    pub fn send(
        &self,
        data: impl Into<Bytes>,
        properties: &MessageProperties,
    ) -> Result<u64, SendError> {
        self.sent(data.into(), properties, |flow, unit| flow.send(unit).map_err(SendError::Live))
    }

    /// As [`send`](Self::send), but waits for the queue no longer than `limit`.
    ///
    /// # Errors
    /// [`SendError::Full`], or those of [`send`](Self::send).
    pub fn send_within(
        &self,
        data: impl Into<Bytes>,
        properties: &MessageProperties,
        limit: Wall,
    ) -> Result<u64, SendError> {
        self.sent(data.into(), properties, |flow, unit| {
            flow.send_within(unit, limit).map_err(|error| match error {
                NotTaken::Full => SendError::Full,
                NotTaken::Failed(error) => SendError::Live(error),
            })
        })
    }

    fn sent(
        &self,
        data: Bytes,
        properties: &MessageProperties,
        send: impl FnOnce(&SendFlow, ontempo_transport::live::Message) -> Result<u64, SendError>,
    ) -> Result<u64, SendError> {
        if !self.can_send() {
            return Err(SendError::NotSending);
        }
        let unit = properties.unit(data, &self.config)?;
        let flow = self.opened().map_err(SendError::Live)?;
        let number = send(flow, unit)?;
        if properties.is_final {
            self.has_final.store(true, Ordering::Relaxed);
            flow.finish();
        }
        Ok(number)
    }

    /// Waits for the next message (the event Received); `None` behind the peer's last.
    ///
    /// # Errors
    /// The connection ended before (the event ReceiveError).
    pub fn receive(&self) -> Result<Option<Message>, Aborted> {
        // Without a limit there is always something.
        self.next(None).unwrap_or(Ok(None))
    }

    /// As [`receive`](Self::receive); `None` after `limit`.
    pub fn receive_within(&self, limit: Wall) -> Option<Result<Option<Message>, Aborted>> {
        self.next(Some(limit))
    }

    fn next(&self, limit: Option<Wall>) -> Option<Result<Option<Message>, Aborted>> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || end.map(|end| end.saturating_duration_since(Instant::now()));
        let Some(flow) = self.group.incoming(self.number, left())? else {
            return Some(match self.group.carrier.is_closed() {
                Some(closed) if closed.reason != CloseReason::Done => {
                    Err(Aborted(closed.to_string()))
                }
                _ => Ok(None),
            });
        };
        loop {
            match delivered(&flow, left())? {
                Ok(Some(Delivery::Unit(unit))) => return Some(Ok(Some(unit.into()))),
                // The sender has the event Expired.
                Ok(Some(Delivery::Dropped(_))) => {}
                Ok(None) => return Some(Ok(None)),
                Err(error) => return Some(Err(Aborted(error.to_string()))),
            }
        }
    }

    /// The events of this connection from now on, the last one
    /// [`Closed`](crate::Event::Closed) or [`ConnectionError`](crate::Event::ConnectionError). One
    /// thread has them, or several that share them.
    pub fn events(&self) -> Events<'_> {
        Events::new(self)
    }

    /// Numbers of the messages that have expired since this was asked.
    pub(crate) fn expired(&self) -> Vec<u64> {
        self.sending.get().map(SendFlow::dropped).unwrap_or_default()
    }

    /// Ends it in order: what was sent arrives, or expires, and the peer's end is waited for, up to
    /// 5 s. The last connection of a group closes what carries it.
    pub fn close(&self) {
        if self.is_closing.swap(true, Ordering::Relaxed) {
            return;
        }
        self.finish();
        let end = Instant::now() + LINGER;
        let left = || end.saturating_duration_since(Instant::now());
        if self.group.transport.ways().1 {
            // What the peer sends meanwhile is not received by anybody.
            while let Some(Ok(Some(_))) = self.receive_within(left()) {}
        }
        if self.group.ended(self.number) {
            if !self.group.transport.ways().1 {
                // A peer that only receives has no end but that of the group.
                self.group.carrier.closed(left());
            }
            self.group.close(CloseReason::Done, "");
        }
    }

    /// Ends what it sends, and waits until all of it has arrived or expired.
    fn finish(&self) {
        if !self.group.transport.ways().0 {
            return;
        }
        // One that has sent nothing has an end, too. It fails where the carrier has ended.
        let Ok(flow) = self.opened() else { return };
        flow.finish();
        while flow.settled(LOOK).is_none() && self.group.carrier.is_closed().is_none() {}
    }

    /// Ends the whole group at once (Abort, AbortGroup): what has not arrived is lost. The peer gets
    /// a [`ConnectionError`](crate::Event::ConnectionError) with the reason.
    pub fn abort(&self, reason: &str) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.group.close(CloseReason::Other(ABORTED), reason);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.group.ended(self.number);
    }
}

fn delivered(flow: &ReceiveFlow, limit: Option<Wall>) -> Option<Result<Option<Delivery>, Error>> {
    match limit {
        None => Some(flow.receive()),
        Some(limit) => flow.receive_within(limit),
    }
}
