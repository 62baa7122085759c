//! Controllers from outside of this crate: a program's own, under the same transports.

use std::fmt;
use std::sync::Arc;

use ontempo_foundation::RandomStream;

use super::{CongestionControl, Start};

/// A congestion controller of the program that uses this crate.
pub trait CustomControl: CongestionControl + fmt::Debug + Send + Sync {
    /// What scenarios and tables call it.
    fn name(&self) -> &str;
    /// A copy in the same state: of the controller of a connection that changes its path.
    fn boxed(&self) -> Box<dyn CustomControl>;
}

impl Clone for Box<dyn CustomControl> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

/// Makes the controllers of a flow's connections.
#[derive(Clone)]
pub struct CustomLaw(Arc<dyn Fn(Start, RandomStream) -> Box<dyn CustomControl> + Send + Sync>);

impl CustomLaw {
    /// The law whose controllers `make` makes.
    pub fn new<C: CustomControl + 'static>(
        make: impl Fn(Start, RandomStream) -> C + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |start, random| Box::new(make(start, random))))
    }

    /// A controller at the start of its connection; `random` drives its random decisions.
    pub fn start(&self, start: Start, random: RandomStream) -> Box<dyn CustomControl> {
        (self.0)(start, random)
    }
}

impl fmt::Debug for CustomLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomLaw").finish_non_exhaustive()
    }
}
