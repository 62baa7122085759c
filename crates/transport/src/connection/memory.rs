//! What a peer makes this side hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ontempo_foundation::Time;

use super::{Connection, Stage};
use crate::close::CloseReason;
use crate::flow::FlowId;

impl Connection {
    /// The application is done with a flow of the peer: what is queued or still arrives of it is
    /// discarded. Once it has ended the peer may open another in its place, and not before this
    /// call: otherwise a peer could end flows faster than the application takes them.
    pub fn release_flow(&mut self, flow: FlowId) {
        if !flow.outgoing {
            self.touched = true;
            self.receiving.release(flow.number);
        }
    }

    /// Counts the memory of units that the application has received and still queues, in bytes: it
    /// is part of [`memory`](Self::memory). The application keeps the count.
    pub fn unprocessed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unprocessed)
    }

    /// Memory of what was received and is not processed, in bytes, at most
    /// [`receive_memory`](crate::Configuration::receive_memory) for all connections of an endpoint.
    pub fn memory(&self) -> u64 {
        if self.stage == Stage::Closed {
            return 0;
        }
        let unprocessed = self.unprocessed.load(Ordering::Relaxed);
        self.receiving.memory() + self.control.memory() + unprocessed
    }

    /// Closes the connection because the endpoint's memory is used up.
    pub(crate) fn overload(&mut self, now: Time) {
        let sentence = "what it sent and the program did not take used too much memory".to_owned();
        self.end(now, CloseReason::Overloaded, sentence, "no memory is left for what you send");
    }
}
