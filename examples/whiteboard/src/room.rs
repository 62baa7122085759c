//! The participants of a board.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ontempo_transport::DeliveryOrder;
use ontempo_web::{Visit, VisitSender};
use ontempo_window::{Impairment, Lane, LaneError};

use crate::board::Board;
use crate::message::{Drawn, PageEvent, Request};
use crate::object::Object;
use crate::station::Station;

/// How long a message that is too many holds up the next of its visitor.
const REFUSAL: Duration = Duration::from_millis(10);

/// Messages of a participant each second, and how many of them may come at once.
const RATE: f64 = 100.0;
const BURST: f64 = 200.0;

/// How long a sender waits before it looks whether its participant is gone.
const PATIENCE: Duration = Duration::from_millis(250);

/// What all share.
#[derive(Default)]
struct State {
    board: Board,
    /// When each unit was put on the board.
    drawn: Vec<Instant>,
    impairment: Impairment,
    participants: Vec<(u32, VisitSender)>,
    last: u32,
}

/// A board, its participants and its lanes.
pub struct Room {
    lanes: [Lane; 2],
    state: Mutex<State>,
    changed: Condvar,
}

/// A unit as it is sent.
pub(crate) struct Sent {
    pub(crate) data: Vec<u8>,
    pub(crate) depends_on: Vec<u64>,
}

impl Room {
    /// An empty board.
    ///
    /// # Errors
    /// If the lanes cannot be started.
    pub fn new(impairment: Impairment) -> Result<Self, LaneError> {
        let lanes = [
            Lane::start(DeliveryOrder::InOrder, impairment)?,
            Lane::start(DeliveryOrder::PartialOrder, impairment)?,
        ];
        let state = Mutex::new(State { impairment, ..State::default() });
        Ok(Self { lanes, state, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a participant until it goes.
    pub fn visit(&self, mut visit: Visit) {
        let (me, old) = self.come(&visit.sender());
        let is_gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for lane in &self.lanes {
                let station =
                    Station { room: self, lane, to: visit.sender(), old, is_gone: &is_gone };
                scope.spawn(move || station.run());
            }
            let to = visit.sender();
            let mut allowance = Allowance::new(Instant::now());
            while let Some(message) = visit.receive() {
                let told = if allowance.takes(Instant::now()) {
                    Request::parse(&message).and_then(|request| self.on(me, request))
                } else {
                    // Not parsed, and not as fast as it comes.
                    std::thread::sleep(REFUSAL);
                    Err(format!("more than {RATE} messages a second are too fast"))
                };
                // Who reads none of its messages is told no more of them.
                if let Err(why) = told {
                    to.try_send(PageEvent::Refused { why }.to_bytes());
                }
            }
            is_gone.store(true, Ordering::Relaxed);
            self.changed.notify_all();
        });
        self.go(me);
    }

    /// The number of a new participant, and how many units it finds.
    fn come(&self, to: &VisitSender) -> (u32, usize) {
        let mut state = self.lock();
        state.last += 1;
        let (me, impairment) = (state.last, state.impairment);
        let units = state.board.entries().len();
        to.try_send(PageEvent::Welcome { you: me, units, impairment }.to_bytes());
        state.participants.push((me, to.clone()));
        (me, units)
    }

    fn go(&self, me: u32) {
        self.lock().participants.retain(|(other, _)| *other != me);
    }

    fn on(&self, me: u32, request: Request) -> Result<(), String> {
        match request {
            Request::Come => Ok(()),
            Request::Draw { object, mark } => self.draw(me, mark, object),
            Request::Path { impairment } => {
                self.lanes.iter().for_each(|lane| lane.impair(impairment));
                self.lock().impairment = impairment;
                Ok(())
            }
        }
    }

    fn draw(&self, by: u32, mark: u32, object: Object) -> Result<(), String> {
        let drawn = Drawn { by, mark, object };
        let data = serde_json::to_vec(&drawn).map_err(|error| error.to_string())?;
        let mut state = self.lock();
        state.board.add(&drawn.object, data).map_err(|error| error.to_string())?;
        let units = state.board.entries().len();
        state.drawn.resize(units, Instant::now());
        // A page that misses it because it reads too slowly has it with the next status.
        let sent = PageEvent::Sent { units }.to_bytes();
        for (_, to) in &state.participants {
            to.try_send(sent.clone());
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The unit with this number, once there is one; `None` if the participant is gone.
    pub(crate) fn unit(&self, number: usize, is_gone: &AtomicBool) -> Option<Sent> {
        let mut state = self.lock();
        loop {
            if is_gone.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(entry) = state.board.entries().get(number) {
                let (data, depends_on) = (entry.data.clone(), entry.depends_on.clone());
                return Some(Sent { data, depends_on });
            }
            let waited = self.changed.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How things stand, for a lane of which `waiting` units wait for others.
    pub(crate) fn status(&self, lane: &'static str, waiting: u64) -> PageEvent {
        let state = self.lock();
        PageEvent::Status {
            lane,
            waiting,
            units: state.board.entries().len(),
            participants: state.participants.len(),
            impairment: state.impairment,
        }
    }

    /// How long ago a unit was put on the board.
    pub(crate) fn age(&self, number: u64) -> Duration {
        let state = self.lock();
        let drawn = usize::try_from(number).ok().and_then(|number| state.drawn.get(number));
        drawn.map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// How many messages of a participant are taken.
struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, at: now }
    }

    fn takes(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * RATE).min(BURST);
        self.at = now;
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_participant_may_send_a_burst_and_then_its_rate() {
        let begun = Instant::now();
        let mut allowance = Allowance::new(begun);
        let at = |millis| begun + Duration::from_millis(millis);
        assert_eq!((0..1_000).filter(|_| allowance.takes(at(0))).count(), BURST as usize);
        let more = (0..10_000).filter(|number| allowance.takes(at(number / 10))).count();
        assert!((98..=100).contains(&more), "{more}");
    }
}
