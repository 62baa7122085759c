//! A participant's end of a lane.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ontempo_transport::Delivery;
use ontempo_transport::live::{Message, NotTaken, ReceiveFlow, SendFlow};
use ontempo_web::VisitSender;
use ontempo_window::{Lane, Line};

use crate::message::{Drawn, PageEvent};
use crate::room::Room;

/// How often a thread looks whether its participant is gone.
const PATIENCE: Duration = Duration::from_millis(250);

/// How often a page is told how things stand.
const TICK: Duration = Duration::from_millis(500);

/// What carries the board to one participant over one lane.
pub(crate) struct Station<'a> {
    pub(crate) room: &'a Room,
    pub(crate) lane: &'a Lane,
    pub(crate) to: VisitSender,
    /// Units that were there before the participant came.
    pub(crate) old: usize,
    pub(crate) is_gone: &'a AtomicBool,
}

impl Station<'_> {
    /// Carries units until the participant is gone, or the line breaks.
    pub(crate) fn run(&self) {
        let line = match self.lane.open() {
            Ok(line) => line,
            Err(error) => {
                let why = format!("no connection over this path ({}): {error}", self.name());
                self.to.try_send(PageEvent::Broken { why }.to_bytes());
                return;
            }
        };
        if !self.to.send(PageEvent::Open { lane: self.name() }.to_bytes()) {
            return;
        }
        let Line { send, receive, .. } = &line;
        std::thread::scope(|scope| {
            scope.spawn(|| self.send(send));
            self.receive(receive);
        });
    }

    fn name(&self) -> &'static str {
        self.lane.order().name()
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Sends the board from its first unit on, so that numbers are the same at all participants.
    fn send(&self, flow: &SendFlow) {
        let mut number = 0;
        while let Some(unit) = self.room.unit(number, self.is_gone) {
            let message = Message {
                data: unit.data.into(),
                depends_on: unit.depends_on,
                ..Message::default()
            };
            match flow.send_within(message, PATIENCE) {
                Ok(_) => number += 1,
                Err(NotTaken::Full) => {}
                Err(NotTaken::Failed(_)) => return,
            }
        }
    }

    /// Tells the page what is delivered.
    fn receive(&self, flow: &ReceiveFlow) {
        let mut told = Instant::now();
        while !self.is_gone() {
            match flow.receive_within(PATIENCE) {
                None | Some(Ok(Some(Delivery::Dropped(_)))) => {}
                Some(Ok(Some(Delivery::Unit(unit)))) => {
                    // Only a page that is gone, or reads nothing for 20 s, does not take it.
                    if !self.to.send(self.shown(unit.id, &unit.data).to_bytes()) {
                        return;
                    }
                }
                // The sender has failed.
                Some(Ok(None)) => {
                    let why = format!("the flow over the path ({}) ended", self.name());
                    self.to.try_send(PageEvent::Broken { why }.to_bytes());
                    return;
                }
                Some(Err(error)) => {
                    let why =
                        format!("the connection over the path ({}) broke: {error}", self.name());
                    self.to.try_send(PageEvent::Broken { why }.to_bytes());
                    return;
                }
            }
            if told.elapsed() >= TICK {
                told = Instant::now();
                let waiting = flow.statistics().map_or(0, |statistics| statistics.waiting);
                self.to.try_send(self.room.status(self.name(), waiting).to_bytes());
            }
        }
    }

    fn shown(&self, number: u64, data: &[u8]) -> PageEvent {
        let ms = self.room.age(number).as_secs_f64() * 1e3;
        let drawn: Option<Drawn> = serde_json::from_slice(data).ok();
        PageEvent::Shown {
            lane: self.name(),
            number,
            ms: (ms * 100.0).round() / 100.0,
            is_old: number < self.old as u64,
            bounds: drawn.as_ref().map(|drawn| drawn.object.bounds()),
            drawn,
        }
    }
}
