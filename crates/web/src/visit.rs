//! Visits: messages both ways over one stream of a session, for programs that block.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use web_transport_noq::noq::VarInt;
use web_transport_noq::{RecvStream, SendStream, Session};

use crate::sessions::{Sessions, close, code};

/// Maximum bytes of a message of a visitor.
pub const MAX_MESSAGE: usize = 16 << 10;

/// Messages of a visitor that wait for the program; then the visitor's wait with it.
const MAX_WAITING: usize = 64;

/// Messages that wait for a visitor; then the program waits.
const MAX_LEAVING: usize = 16;

/// Time limit for a visitor to open its stream.
const OPENING: Duration = Duration::from_secs(5);

/// Time limit for a message to leave: a visitor that reads nothing is sent away.
const LEAVING: Duration = Duration::from_secs(20);

/// Bytes of a message's length, before it.
const LENGTH: usize = 4;

/// A visitor of a page.
#[derive(Debug)]
pub struct Visit {
    messages: mpsc::Receiver<Bytes>,
    to: VisitSender,
}

/// Sends messages to a visitor.
#[derive(Clone, Debug)]
pub struct VisitSender(mpsc::Sender<Bytes>);

impl Visit {
    /// Waits for the visitor's next message; `None` when it is gone.
    pub fn receive(&mut self) -> Option<Bytes> {
        self.messages.blocking_recv()
    }

    /// Sends messages to it. It is sent away once this visit and all its senders are dropped.
    pub fn sender(&self) -> VisitSender {
        self.to.clone()
    }
}

impl VisitSender {
    /// Queues a message, and waits while too many are queued; false if the visitor is gone.
    pub fn send(&self, message: impl Into<Bytes>) -> bool {
        self.0.blocking_send(message.into()).is_ok()
    }

    /// As [`send`](Self::send), but does not wait; false also if too many are queued.
    pub fn try_send(&self, message: impl Into<Bytes>) -> bool {
        self.0.try_send(message.into()).is_ok()
    }
}

/// The visits of a page.
pub(crate) struct Visits<F> {
    places: Arc<Semaphore>,
    visit: Arc<F>,
}

impl<F: Fn(Visit) + Send + Sync + 'static> Visits<F> {
    pub(crate) fn new(places: usize, visit: F) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), visit: Arc::new(visit) }
    }

    async fn serve_one(&self, session: &Session) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            close(session, code::FULL, "no place").await;
            return;
        };
        let Ok(Ok((to, from))) = timeout(OPENING, session.accept_bi()).await else { return };
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let (to_visitor, leaving) = mpsc::channel(MAX_LEAVING);
        let visit = Visit { messages, to: VisitSender(to_visitor) };
        let serve = Arc::clone(&self.visit);
        let thread = std::thread::Builder::new().name("visit".to_owned()).spawn(move || {
            serve(visit);
            // Not before: what the visit holds is bounded by the places.
            drop(place);
        });
        if thread.is_err() {
            close(session, code::FULL, "no thread").await;
            return;
        }
        tokio::select! {
            _ = session.closed() => {}
            () = read(session, from, sender) => {}
            () = write(to, leaving) => {}
        }
        session.close(code::ENDING, b"the visit is over");
    }
}

impl<F: Fn(Visit) + Send + Sync + 'static> Sessions for Visits<F> {
    fn serve<'a>(&'a self, session: &'a Session) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.serve_one(session))
    }
}

/// Reads messages until the visitor ends, or sends one that is too long.
async fn read(session: &Session, mut from: RecvStream, to: mpsc::Sender<Bytes>) {
    loop {
        let mut length = [0; LENGTH];
        if from.read_exact(&mut length).await.is_err() {
            return;
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return;
        }
        let mut message = vec![0; length];
        if from.read_exact(&mut message).await.is_err() || to.send(message.into()).await.is_err() {
            return;
        }
        // As much as was taken here may come again: see `sessions::admit`.
        let taken = u32::try_from(LENGTH + length).unwrap_or(0);
        session.set_receive_window(VarInt::from_u32(taken));
        session.set_receive_window(VarInt::from_u32(0));
    }
}

/// Writes messages until the program has dropped all that sends them, or the visitor takes none.
async fn write(mut to: SendStream, mut leaving: mpsc::Receiver<Bytes>) {
    while let Some(message) = leaving.recv().await {
        let mut head = BytesMut::with_capacity(LENGTH);
        head.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        let written = timeout(LEAVING, async {
            to.write_chunk(head.freeze()).await?;
            to.write_chunk(message).await
        });
        if !matches!(written.await, Ok(Ok(()))) {
            return;
        }
    }
}
