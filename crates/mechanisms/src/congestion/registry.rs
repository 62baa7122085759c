//! Congestion controllers by name: the implementation of the registry in the module above.

use std::fmt;

use ontempo_foundation::RandomStream;

use super::{CongestionControl, CongestionName, Parameters, Start};

/// A controller that the registry can create.
pub trait Registered: CongestionControl + Sized {
    /// Its parameters.
    type Parameters: Parameters;

    /// A controller at the start of its connection; `random` drives its random decisions.
    fn start(start: Start, parameters: Self::Parameters, random: RandomStream) -> Self;
}

/// Where a congestion controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// The simulator's TCP.
    Simulation,
    /// The transport over UDP, real or simulated.
    Transport,
    /// A TCP socket of the Linux kernel.
    Kernel,
}

/// A text is not the name of a congestion controller, or not of one that runs in the given world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCongestion {
    text: String,
    /// The given world, if the name is that of a controller that runs elsewhere.
    world: Option<World>,
}

impl UnknownCongestion {
    pub(super) fn no_name(text: &str) -> Self {
        Self { text: text.to_owned(), world: None }
    }

    /// `name` does not run in `world`.
    pub fn not_in(world: World, name: CongestionName) -> Self {
        Self { text: name.name().to_owned(), world: Some(world) }
    }
}

impl fmt::Display for UnknownCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = |name: &CongestionName| self.world.is_none_or(|world| name.runs_in(world));
        let names: Vec<_> =
            CongestionName::ALL.into_iter().filter(runs).map(CongestionName::name).collect();
        let what = match self.world {
            None => "is not a congestion control",
            Some(World::Simulation) => "is not simulated",
            Some(World::Transport) => "does not run over UDP",
            Some(World::Kernel) => "is not in the Linux kernel",
        };
        write!(f, "`{}` {what}; there are {}", self.text, names.join(", "))
    }
}

impl std::error::Error for UnknownCongestion {}

/// Declares the names, the controllers and their parameters.
macro_rules! registry {
    (
        controllers {$(
            $(#[doc = $doc:literal])+
            $controller:ident $name:literal {
                title: $title:literal, held: $held:ty, kernel: $kernel:expr
            }
        )+}
        others {$(
            $(#[doc = $other_doc:literal])+
            $other:ident $other_name:literal {
                title: $other_title:literal, parameters: $parameters:ty,
                governs: $governor:expr, kernel: $other_kernel:expr
            }
        )+}
    ) => {
        /// The names of the congestion controllers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CongestionName {
            $($(#[doc = $doc])+ $controller,)+
            $($(#[doc = $other_doc])+ $other,)+
        }

        impl CongestionName {
            /// All of them.
            pub const ALL: [Self; [$($name,)+ $($other_name,)+].len()] =
                [$(Self::$controller,)+ $(Self::$other,)+];

            /// Its name in files and options.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$controller => $name,)+
                    $(Self::$other => $other_name,)+
                }
            }

            /// Its name in prose.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$controller => $title,)+
                    $(Self::$other => $other_title,)+
                }
            }

            /// A one-line description.
            pub fn doc(self) -> &'static str {
                match self {
                    $(Self::$controller => concat!($($doc),+),)+
                    $(Self::$other => concat!($($other_doc),+),)+
                }.trim()
            }

            /// Its name in the Linux kernel; `None` if the kernel does not have it.
            pub const fn kernel(self) -> Option<&'static str> {
                match self {
                    $(Self::$controller => $kernel,)+
                    $(Self::$other => $other_kernel,)+
                }
            }

            /// Whether it runs in that world.
            pub const fn runs_in(self, world: World) -> bool {
                match world {
                    World::Simulation => matches!(self, $(Self::$controller)|+),
                    World::Transport => true,
                    World::Kernel => self.kernel().is_some(),
                }
            }

            /// Its parameters, for a reference.
            pub fn parameters(self) -> Vec<ParameterInfo> {
                match self {
                    $(Self::$controller =>
                        parameter::described::<<$controller as Registered>::Parameters>(),)+
                    $(Self::$other => parameter::described::<$parameters>(),)+
                }
            }

            /// The variants of its parameters, the default first.
            pub fn variants(self) -> Vec<VariantInfo> {
                match self {
                    $(Self::$controller =>
                        parameter::variants::<<$controller as Registered>::Parameters>(),)+
                    $(Self::$other => parameter::variants::<$parameters>(),)+
                }
            }

            /// This controller with its parameters; parameters without an assignment have their
            /// defaults.
            ///
            /// # Errors
            /// Names the parameter that is unknown or out of its range, and what would be valid.
            pub fn with<'a>(
                self,
                assignments: impl IntoIterator<Item = (&'a str, &'a str)>,
            ) -> Result<Congestion, ParameterError> {
                Ok(match self {
                    $(Self::$controller => {
                        let (variant, parameters) = parameters_from(assignments)?;
                        Congestion { variant, set: Set::Window(Law::$controller(parameters)) }
                    })+
                    $(Self::$other => {
                        let (variant, parameters) = parameters_from(assignments)?;
                        Congestion { variant, set: Set::$other(parameters) }
                    })+
                })
            }
        }

        /// A law of the window with its parameters, from which a [`Controller`] is created.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Law {
            $($(#[doc = $doc])+ $controller(<$controller as Registered>::Parameters),)+
        }

        impl Law {
            /// A controller at the start of its connection; `random` drives its random
            /// decisions.
            pub fn start(self, start: Start, random: RandomStream) -> Controller {
                match self {
                    $(Self::$controller(parameters) => {
                        $controller::start(start, parameters, random).into()
                    })+
                }
            }
        }

        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Set {
            Window(Law),
            $($other($parameters),)+
        }

        impl Congestion {
            /// Its name.
            pub const fn name(&self) -> CongestionName {
                match self.set {
                    $(Set::Window(Law::$controller(_)) => CongestionName::$controller,)+
                    $(Set::$other(_) => CongestionName::$other,)+
                }
            }

            /// Differences from the defaults; `variant` first, if it is one of them.
            pub fn changed(&self) -> Vec<(&'static str, Value)> {
                match &self.set {
                    $(Set::Window(Law::$controller(now)) => {
                        parameter::changed(self.variant, now)
                    })+
                    $(Set::$other(now) => parameter::changed(self.variant, now),)+
                }
            }

            /// What controls the sending rate.
            pub fn governor(&self) -> Governor {
                match self.set {
                    Set::Window(law) => Governor::Window(law),
                    $(Set::$other(parameters) => ($governor)(parameters),)+
                }
            }
        }

        impl From<CongestionName> for Congestion {
            /// With its default parameters.
            fn from(name: CongestionName) -> Self {
                let set = match name {
                    $(CongestionName::$controller => {
                        Set::Window(Law::$controller(Default::default()))
                    })+
                    $(CongestionName::$other => Set::$other(Default::default()),)+
                };
                Self { variant: 0, set }
            }
        }

        /// One of the controllers of this crate, called without a vtable, or a program's own.
        #[derive(Clone, Debug)]
        pub enum Controller {
            $($(#[doc = $doc])+ $controller($held),)+
            /// A program's own, called through its vtable.
            Custom(Box<dyn CustomControl>),
        }

        impl Controller {
            /// Its name in files and options.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$controller(_) => $name,)+
                    Self::Custom(inner) => inner.name(),
                }
            }
        }

        impl CongestionControl for Controller {
            fn delivery_rates(&mut self) -> Option<&mut DeliveryRates> {
                match self {
                    $(Self::$controller(inner) => inner.delivery_rates(),)+
                    Self::Custom(inner) => inner.delivery_rates(),
                }
            }

            fn on_handshake(&mut self, now: Time, rtt: Duration) {
                match self {
                    $(Self::$controller(inner) => inner.on_handshake(now, rtt),)+
                    Self::Custom(inner) => inner.on_handshake(now, rtt),
                }
            }

            fn on_sent(&mut self, sent: &Sent) {
                match self {
                    $(Self::$controller(inner) => inner.on_sent(sent),)+
                    Self::Custom(inner) => inner.on_sent(sent),
                }
            }

            #[inline]
            fn on_ack(&mut self, ack: &Ack) {
                match self {
                    $(Self::$controller(inner) => inner.on_ack(ack),)+
                    Self::Custom(inner) => inner.on_ack(ack),
                }
            }

            fn on_loss(&mut self, loss: &Loss) {
                match self {
                    $(Self::$controller(inner) => inner.on_loss(loss),)+
                    Self::Custom(inner) => inner.on_loss(loss),
                }
            }

            fn on_ecn(&mut self, mark: &Loss) {
                match self {
                    $(Self::$controller(inner) => inner.on_ecn(mark),)+
                    Self::Custom(inner) => inner.on_ecn(mark),
                }
            }

            fn on_timeout(&mut self, timeout: &Timeout) {
                match self {
                    $(Self::$controller(inner) => inner.on_timeout(timeout),)+
                    Self::Custom(inner) => inner.on_timeout(timeout),
                }
            }

            fn on_spurious_timeout(&mut self, before: &Snapshot) {
                match self {
                    $(Self::$controller(inner) => inner.on_spurious_timeout(before),)+
                    Self::Custom(inner) => inner.on_spurious_timeout(before),
                }
            }

            fn on_idle_restart(&mut self) {
                match self {
                    $(Self::$controller(inner) => inner.on_idle_restart(),)+
                    Self::Custom(inner) => inner.on_idle_restart(),
                }
            }

            fn on_idle_decay(&mut self, timeouts: u64) {
                match self {
                    $(Self::$controller(inner) => inner.on_idle_decay(timeouts),)+
                    Self::Custom(inner) => inner.on_idle_decay(timeouts),
                }
            }

            #[inline]
            fn window(&self) -> Window {
                match self {
                    $(Self::$controller(inner) => inner.window(),)+
                    Self::Custom(inner) => inner.window(),
                }
            }

            fn pacing_rate(&self) -> Option<Rate> {
                match self {
                    $(Self::$controller(inner) => inner.pacing_rate(),)+
                    Self::Custom(inner) => inner.pacing_rate(),
                }
            }

            fn burst(&self) -> Packets {
                match self {
                    $(Self::$controller(inner) => inner.burst(),)+
                    Self::Custom(inner) => inner.burst(),
                }
            }

            fn snapshot(&self) -> Snapshot {
                match self {
                    $(Self::$controller(inner) => inner.snapshot(),)+
                    Self::Custom(inner) => inner.snapshot(),
                }
            }
        }

        $(
            impl From<$controller> for Controller {
                fn from(inner: $controller) -> Self {
                    Self::$controller(inner.into())
                }
            }
        )+
    };
}
