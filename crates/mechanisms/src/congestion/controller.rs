//! Any one of the controllers, chosen at run time and called without a vtable.

use std::convert::identity;

use ontempo_foundation::{Packets, Rate};

use super::{
    Ack, CongestionControl, Cubic, Loss, NewReno, Pert, Reno, Sent, Snapshot, Timeout, Vegas,
    Window,
};

/// One of the controllers of this crate.
#[derive(Clone, Debug)]
pub enum Controller {
    /// Reno (RFC 5681).
    Reno(Reno),
    /// NewReno: Reno once per window (RFC 6582).
    NewReno(NewReno),
    /// CUBIC (RFC 9438); boxed, as each of the large ones is.
    Cubic(Box<Cubic>),
    /// Vegas (Brakmo and Peterson, 1995).
    Vegas(Box<Vegas>),
    /// PERT (thesis, ch. II).
    Pert(Box<Pert>),
}

impl Controller {
    /// Its name, as a scenario writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reno(_) => "reno",
            Self::NewReno(_) => "newreno",
            Self::Cubic(_) => "cubic",
            Self::Vegas(_) => "vegas",
            Self::Pert(_) => "pert",
        }
    }
}

macro_rules! dispatch {
    ($controller:expr, $inner:ident => $call:expr) => {
        match $controller {
            Controller::Reno($inner) => $call,
            Controller::NewReno($inner) => $call,
            Controller::Cubic($inner) => $call,
            Controller::Vegas($inner) => $call,
            Controller::Pert($inner) => $call,
        }
    };
}

impl CongestionControl for Controller {
    fn on_sent(&mut self, sent: &Sent) {
        dispatch!(self, inner => inner.on_sent(sent));
    }

    fn on_ack(&mut self, ack: &Ack) {
        dispatch!(self, inner => inner.on_ack(ack));
    }

    fn on_loss(&mut self, loss: &Loss) {
        dispatch!(self, inner => inner.on_loss(loss));
    }

    fn on_ecn(&mut self, mark: &Loss) {
        dispatch!(self, inner => inner.on_ecn(mark));
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        dispatch!(self, inner => inner.on_timeout(timeout));
    }

    fn on_idle_restart(&mut self) {
        dispatch!(self, inner => inner.on_idle_restart());
    }

    fn window(&self) -> Window {
        dispatch!(self, inner => inner.window())
    }

    fn pacing_rate(&self) -> Option<Rate> {
        dispatch!(self, inner => inner.pacing_rate())
    }

    fn burst(&self) -> Packets {
        dispatch!(self, inner => inner.burst())
    }

    fn snapshot(&self) -> Snapshot {
        dispatch!(self, inner => inner.snapshot())
    }
}

macro_rules! from_each {
    ($($controller:ident: $wrap:expr),*) => {$(
        impl From<$controller> for Controller {
            fn from(inner: $controller) -> Self {
                Self::$controller($wrap(inner))
            }
        }
    )*};
}
from_each!(Reno: identity, NewReno: identity, Vegas: Box::new, Cubic: Box::new, Pert: Box::new);
