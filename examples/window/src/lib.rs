//! What the examples `whiteboard` and `page` share.
//!
//! Units travel between two ends of ontempo's transport over a path that loses and delays packets ([`Impairment`]), by
//! the relay of `ontempo impair`, twice: in order and in partial order, each in a [`Lane`] of its own. Both
//! ends are in this program, since a browser speaks no UDP. A page in the browser is the window: it sends what its
//! visitor does, and shows what each lane has delivered ([`serve`]).

mod impairment;
mod lane;
mod serving;

pub use impairment::Impairment;
pub use lane::{Lane, LaneError, Line};
pub use serving::{Arguments, FILES, Trouble, run, serve};
