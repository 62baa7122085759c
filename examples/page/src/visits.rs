//! Visitors, each of whom loads the page when it likes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ontempo_transport::live::{Message, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::{Delivery, DeliveryOrder};
use ontempo_web::{Visit, VisitSender};
use ontempo_window::{Impairment, Lane, LaneError, Line};

use crate::assembly::{Assembly, Taken};
use crate::message::{PageEvent, Request};
use crate::page::Page;

/// How often a thread looks whether its visitor is gone.
const PATIENCE: Duration = Duration::from_millis(250);

/// The least time between two messages of a visitor that are not ignored.
const PAUSE: Duration = Duration::from_millis(20);

/// A page and the lanes that it travels over.
pub struct Visits {
    page: Page,
    lanes: [Lane; 2],
    impairment: Mutex<Impairment>,
}

impl Visits {
    /// Starts the lanes.
    ///
    /// # Errors
    /// If the system has no sockets or threads for them.
    pub fn new(page: Page, impairment: Impairment) -> Result<Self, LaneError> {
        let lanes = [
            Lane::start(DeliveryOrder::InOrder, impairment)?,
            Lane::start(DeliveryOrder::PartialOrder, impairment)?,
        ];
        Ok(Self { page, lanes, impairment: Mutex::new(impairment) })
    }

    /// Serves a visitor until it goes.
    pub fn visit(&self, mut visit: Visit) {
        let (to, is_gone, is_loading) =
            (visit.sender(), AtomicBool::new(false), AtomicBool::new(false));
        let impairment = *self.impairment.lock().unwrap_or_else(PoisonError::into_inner);
        to.try_send(PageEvent::Path { impairment }.to_bytes());
        thread::scope(|scope| {
            while let Some(message) = visit.receive() {
                let refuse = |why: String| to.try_send(PageEvent::Refused { why }.to_bytes());
                match Request::parse(&message) {
                    Err(why) => {
                        refuse(why);
                    }
                    Ok(Request::Come) => {}
                    Ok(Request::Path { impairment }) => {
                        self.lanes.iter().for_each(|lane| lane.impair(impairment));
                        *self.impairment.lock().unwrap_or_else(PoisonError::into_inner) =
                            impairment;
                        to.try_send(PageEvent::Path { impairment }.to_bytes());
                    }
                    Ok(Request::Load) if is_loading.swap(true, Ordering::Relaxed) => {
                        refuse("the page is being loaded".to_owned());
                    }
                    Ok(Request::Load) => {
                        let (to, is_gone, is_loading) = (to.clone(), &is_gone, &is_loading);
                        scope.spawn(move || {
                            if let Err(error) = self.load(&to, is_gone) {
                                let why = format!("no connection over this path: {error}");
                                to.try_send(PageEvent::Refused { why }.to_bytes());
                            }
                            is_loading.store(false, Ordering::Relaxed);
                            to.send(PageEvent::Ended.to_bytes());
                        });
                    }
                }
                // What comes faster waits, and its visitor with it.
                thread::sleep(PAUSE);
            }
            is_gone.store(true, Ordering::Relaxed);
        });
    }

    /// Loads the page over both lanes at once.
    fn load(&self, to: &VisitSender, is_gone: &AtomicBool) -> Result<(), LaneError> {
        let [one, other] = thread::scope(|scope| {
            let opening = [0, 1].map(|at: usize| scope.spawn(move || self.lanes[at].open()));
            opening.map(|thread| thread.join().unwrap_or(Err(LaneError::Unheard)))
        });
        let lines = [one?, other?];
        to.send(PageEvent::Begin.to_bytes());
        let begun = Instant::now();
        thread::scope(|scope| {
            for (lane, Line { send, receive, .. }) in (0..).zip(&lines) {
                scope.spawn(move || self.send(send, is_gone));
                scope.spawn(move || {
                    if let Err(why) = self.receive(lane, receive, to, begun, is_gone) {
                        to.try_send(PageEvent::Refused { why }.to_bytes());
                    }
                });
            }
        });
        Ok(())
    }

    fn send(&self, flow: &SendFlow, is_gone: &AtomicBool) {
        for unit in self.page.units() {
            let data = Bytes::from(unit.data.clone());
            let depends_on = unit.depends_on.clone();
            let message = Message { data, depends_on, ..Message::default() };
            loop {
                if is_gone.load(Ordering::Relaxed) {
                    return;
                }
                match flow.send_within(message.clone(), PATIENCE) {
                    Ok(_) => break,
                    Err(NotTaken::Full) => {}
                    Err(NotTaken::Failed(_)) => return,
                }
            }
        }
        flow.finish();
    }

    /// Passes on what a lane delivers, until it has delivered everything.
    fn receive(
        &self,
        lane: u8,
        flow: &ReceiveFlow,
        to: &VisitSender,
        begun: Instant,
        is_gone: &AtomicBool,
    ) -> Result<(), String> {
        let (mut assembly, mut bytes, mut units) = (Assembly::new(), 0, 0);
        while !is_gone.load(Ordering::Relaxed) {
            let delivery = match flow.receive_within(PATIENCE) {
                None => continue,
                Some(Ok(Some(Delivery::Unit(unit)))) => unit,
                // With full reliability no unit is dropped.
                Some(Ok(Some(Delivery::Dropped(_)))) => continue,
                Some(Ok(None)) => break,
                Some(Err(error)) => return Err(error.to_string()),
            };
            units += 1;
            bytes += delivery.data.len();
            let message = match assembly.take(&delivery.data).map_err(|error| error.to_string())? {
                Taken::Page(page) => PageEvent::Page { lane, page }.to_bytes(),
                Taken::Tables => continue,
                Taken::Paint(paint) => paint.to_bytes(lane),
            };
            if !to.send(message) {
                return Ok(());
            }
        }
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        to.send(PageEvent::Whole { lane, ms, bytes, units }.to_bytes());
        Ok(())
    }
}
