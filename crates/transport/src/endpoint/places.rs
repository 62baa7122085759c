//! The places of connections that have presented the token.

use std::sync::atomic::Ordering;

use ontempo_foundation::Time;

use super::{Endpoint, part};
use crate::close::NOT_LISTENING;

impl Endpoint {
    /// A connection that has presented the token gets a place; it is refused if others with the
    /// token have taken the last one since it began, or if the endpoint listens no more.
    pub(super) fn give_place(&mut self, place: usize) {
        let Some(Some(kept)) = self.connections.get_mut(place) else { return };
        if kept.has_place || !kept.connection.is_open() {
            return;
        }
        let origin = Some(kept.origin);
        let mut places = self.share.places();
        let why = if self.listening.is_none() {
            Some(NOT_LISTENING)
        } else {
            (!places.has(origin, &self.config)).then_some("all places are taken")
        };
        if let Some(why) = why {
            let now = Time::from_nanos(self.clock.load(Ordering::Relaxed));
            kept.connection.refuse(now, why);
            return;
        }
        places.take(origin);
        kept.has_place = true;
        kept.buffers = part(kept.connection.configuration());
        self.admission.remove(place);
    }
}
