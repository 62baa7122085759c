//! Which stream goes to which pad, and the thread that makes pads and takes them away.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, sleep};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer::subclass::prelude::*;
use ontempo_media::{Codings, Elementary};

use super::OntempoSrc;
use super::queue::Queue;
use super::queues::{Queues, STEP};
use crate::media::elementary_caps;
use crate::place::pad_name;

/// A set of streams begins behind another: when what is left of that has been played.
struct Change {
    /// The number of the new set.
    epoch: u64,
    /// The queues of pads that both have; what is of the new set is held there.
    staying: Vec<Arc<Queue>>,
    /// Those of pads that the new set does not have; they have ended.
    leaving: Vec<Arc<Queue>>,
    /// The pads of the new set, if they are others.
    other: Option<Arrangement>,
}

/// The pads of a set.
struct Arrangement {
    /// A stream goes to `src`.
    has_src: bool,
    /// Streams that have pads of their own.
    coming: Vec<Coming>,
    /// What is linked to `src` takes none of the streams: a sentence.
    refusal: Option<String>,
    is_of_several: bool,
}

/// A stream that has a pad of its own.
struct Coming {
    number: usize,
    coding: Elementary,
    queue: Arc<Queue>,
}

/// The sets of streams that have come, one of which may be a stream alone.
pub(super) struct Sets {
    queues: Arc<Queues>,
    /// Has no room, so that one set at most waits for the end of another.
    changes: SyncSender<Change>,
    /// Sets so far.
    epoch: u64,
    /// The last one, of several streams, and the queues of all of them.
    several: Option<(Codings, Vec<Arc<Queue>>)>,
}

impl Sets {
    /// Streams begin; answers the queue of each. `None`: a stream that is no elementary one.
    ///
    /// Waits while the set before this one still waits for the end of another.
    pub(super) fn begin(
        &mut self,
        element: &OntempoSrc,
        codings: Option<Codings>,
    ) -> Vec<Arc<Queue>> {
        self.epoch += 1;
        let several = codings.filter(|codings| codings.only().is_none());
        let (of_streams, change) = match (several, self.several.take()) {
            // Behind one another at the same pad.
            (None, None) => (vec![Arc::clone(&self.queues.first)], None),
            (Some(codings), Some((before, of_streams))) if codings == before => {
                let (staying, leaving) = (of_streams.clone(), Vec::new());
                let change = Change { epoch: self.epoch, staying, leaving, other: None };
                (of_streams, Some(change))
            }
            (several, before) => {
                let before = before.map(|(_, of_streams)| of_streams).unwrap_or_default();
                let (of_streams, change) = self.replace(element, several, before);
                (of_streams, Some(change))
            }
        };
        self.several = several.map(|codings| (codings, of_streams.clone()));
        let staying = change.as_ref().map(|change| change.staying.clone()).unwrap_or_default();
        staying.iter().for_each(|queue| queue.hold(self.epoch));
        for (number, queue) in of_streams.iter().enumerate() {
            let coding = codings.and_then(|all| all.as_slice().get(number).copied());
            queue.begin(coding, self.epoch, number);
        }
        if let Some(change) = change
            && self.changes.send(change).is_err()
        {
            // The element stops.
            staying.iter().for_each(|queue| queue.release());
        }
        of_streams
    }

    /// Decides where the streams of another set go. What is linked to `src` gets the first stream that it takes;
    /// each of the others has a pad of its own, and one alone goes to `src`.
    fn replace(
        &self,
        element: &OntempoSrc,
        several: Option<Codings>,
        before: Vec<Arc<Queue>>,
    ) -> (Vec<Arc<Queue>>, Change) {
        let first = &self.queues.first;
        let is_first = |queue: &Arc<Queue>| Arc::ptr_eq(queue, first);
        let leaving: Vec<_> = before.into_iter().filter(|queue| !is_first(queue)).collect();
        leaving.iter().for_each(|queue| queue.end(Ok(())));
        let (of_streams, arrangement) = match several {
            Some(codings) => self.arrange(element, codings),
            None => {
                let (coming, refusal) = (Vec::new(), None);
                let one = Arrangement { has_src: true, coming, refusal, is_of_several: false };
                (vec![Arc::clone(first)], one)
            }
        };
        // Also where no stream goes to it now: what is left there is waited for.
        let (staying, other) = (vec![Arc::clone(first)], Some(arrangement));
        (of_streams, Change { epoch: self.epoch, staying, leaving, other })
    }

    fn arrange(&self, element: &OntempoSrc, codings: Codings) -> (Vec<Arc<Queue>>, Arrangement) {
        let always = element.static_pad("src").filter(|pad| pad.is_linked());
        let taken = always.map(|pad| pad.peer_query_caps(None));
        let is_taken = |coding: &Elementary| {
            taken.as_ref().is_some_and(|taken| taken.can_intersect(&elementary_caps(*coding)))
        };
        let of_src = codings.as_slice().iter().position(is_taken);
        let refusal = (taken.is_some() && of_src.is_none()).then(|| {
            format!("the sender sends {codings}, of which what is linked to src takes nothing")
        });
        let (mut of_streams, mut coming) = (Vec::new(), Vec::new());
        for (number, &coding) in codings.as_slice().iter().enumerate() {
            if of_src == Some(number) {
                of_streams.push(Arc::clone(&self.queues.first));
                continue;
            }
            let queue = self.queues.add();
            of_streams.push(Arc::clone(&queue));
            coming.push(Coming { number, coding, queue });
        }
        let has_src = of_src.is_some();
        (of_streams, Arrangement { has_src, coming, refusal, is_of_several: true })
    }
}

/// The thread's.
pub(super) struct Pads {
    element: glib::WeakRef<OntempoSrc>,
    queues: Arc<Queues>,
    changes: Receiver<Change>,
    /// The queues of pads that are still there though their streams have ended.
    leaving: Vec<Arc<Queue>>,
}

impl Pads {
    /// Starts the thread, which ends some time after the [`Sets`].
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(
        element: &OntempoSrc,
        queues: &Arc<Queues>,
    ) -> std::io::Result<(Sets, JoinHandle<()>)> {
        let (sender, changes) = sync_channel(0);
        let (element, of_thread) = (element.downgrade(), Arc::clone(queues));
        let pads = Self { element, queues: of_thread, changes, leaving: Vec::new() };
        let thread = Builder::new().name("ontemposrc-pads".to_owned()).spawn(|| pads.run())?;
        let (queues, several) = (Arc::clone(queues), None);
        Ok((Sets { queues, changes: sender, epoch: 0, several }, thread))
    }

    fn run(mut self) {
        while !self.queues.is_stopping() {
            let next = if self.leaving.is_empty() {
                self.changes.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.changes.recv_timeout(STEP)
            };
            match next {
                Ok(change) => self.follow(change),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if self.leaving.is_empty() => return,
                // Nothing more comes; pads still go.
                Err(RecvTimeoutError::Disconnected) => sleep(STEP),
            }
            self.remove_played();
        }
    }

    /// Waits for the end of what was before, as far as that is played, and begins what is new.
    fn follow(&mut self, Change { epoch, staying, leaving, other }: Change) {
        // Beside the last set, pads that stand still hold nothing.
        self.leaving.iter().for_each(|queue| queue.forget());
        let earlier = self.leaving.len();
        self.leaving.extend(leaving);
        loop {
            let is_awaited = |queue: &Arc<Queue>| !self.queues.stands_still(queue);
            let mut kept = staying.iter().filter(|queue| !queue.has_passed(epoch));
            let mut gone = self.leaving.iter().skip(earlier).filter(|queue| !queue.has_left());
            if !kept.any(is_awaited) && !gone.any(is_awaited) {
                break;
            }
            if self.queues.is_stopping() {
                return;
            }
            sleep(STEP);
        }
        self.leaving.iter().skip(earlier).for_each(|queue| self.warn_of_standstill(queue));
        self.remove_played();
        if let Some(other) = other {
            self.make(other);
        }
        staying.iter().for_each(|queue| queue.release());
    }

    fn warn_of_standstill(&self, queue: &Queue) {
        if queue.has_left() {
            return;
        }
        let Some(element) = self.element.upgrade() else { return };
        let pad = pad_name("src", queue.place());
        let sentence = format!(
            "{pad} has ended, and what follows it takes nothing: the next streams begin, and it goes when that takes the rest"
        );
        gst::element_warning!(element, gst::ResourceError::Read, ("{sentence}"));
    }

    /// Takes away the pads that have been played to their end.
    fn remove_played(&mut self) {
        let Some(element) = self.element.upgrade() else { return };
        let leaving = std::mem::take(&mut self.leaving);
        let (played, leaving): (Vec<_>, Vec<_>) =
            leaving.into_iter().partition(|queue| queue.has_left());
        self.leaving = leaving;
        for queue in played {
            element.imp().remove_of(&queue);
            self.queues.remove(&queue);
        }
    }

    /// Makes the pads of a set.
    fn make(&self, Arrangement { has_src, coming, refusal, is_of_several }: Arrangement) {
        let Some(element) = self.element.upgrade().filter(|_| !self.queues.is_stopping()) else {
            return;
        };
        if let Some(sentence) = refusal {
            gst::element_error!(element, gst::StreamError::Format, ("{sentence}"));
        }
        let mut pads: Vec<gst::Pad> =
            element.static_pad("src").into_iter().filter(|_| has_src).collect();
        for Coming { number, coding, queue } in coming {
            match element.imp().add(number, coding, &queue, &self.queues) {
                Some(pad) => pads.push(pad),
                None => queue.leave(),
            }
        }
        // Who stopped it meanwhile may have started it again.
        if self.queues.is_stopping() {
            return;
        }
        element.imp().common().use_pads(&pads);
        if is_of_several {
            element.no_more_pads();
        }
    }
}
