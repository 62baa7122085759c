use ontempo_foundation::{Bytes, Rate};

use super::boundary::InterfaceConfig;
use crate::message::{Cause, FlowSpec, TrafficSpec};

/// What is promised on one interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    reservable: Rate,
    reservable_burst: Bytes,
    rate: Rate,
    burst: Bytes,
}

impl Ledger {
    pub(super) fn new(config: &InterfaceConfig) -> Self {
        Self {
            reservable: config.reservable,
            reservable_burst: config.reservable_burst,
            rate: Rate::default(),
            burst: Bytes::ZERO,
        }
    }

    /// Sum of the rates promised.
    pub(super) fn reserved(&self) -> Rate {
        self.rate
    }

    /// Promises `new` in place of `old`, or leaves all as it is.
    pub(super) fn replace(&mut self, old: Share, new: Share) -> Result<(), Cause> {
        let rate = u128::from(self.rate.as_bits_per_sec()) + u128::from(new.rate.as_bits_per_sec())
            - u128::from(old.rate.as_bits_per_sec());
        let burst = u128::from(self.burst.get()) + u128::from(new.burst.get())
            - u128::from(old.burst.get());
        // What asks for no more than before is never refused, even if the link has shrunk.
        let more = new.rate > old.rate || new.burst > old.burst;
        if more
            && (rate > u128::from(self.reservable.as_bits_per_sec())
                || burst > u128::from(self.reservable_burst.get()))
        {
            return Err(Cause::Bandwidth);
        }
        self.rate = Rate::from_bits_per_sec(u64::try_from(rate).unwrap_or(u64::MAX));
        self.burst = Bytes::new(u64::try_from(burst).unwrap_or(u64::MAX));
        Ok(())
    }
}

/// What one reservation takes of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) rate: Rate,
    pub(super) burst: Bytes,
}

impl Share {
    /// Rounded up; floats too large for it saturate.
    pub(super) fn of(flowspec: &FlowSpec) -> Self {
        let bits = (f64::from(flowspec.reserved_rate()) * 8.0).ceil();
        let burst = f64::from(flowspec.traffic().burst).ceil();
        Self { rate: Rate::from_bits_per_sec(bits as u64), burst: Bytes::new(burst as u64) }
    }
}

/// Whether a traffic can be at all (RFC 2211 and RFC 2212 section on TSpecs; RFC 2215).
pub(super) fn consistent(traffic: &TrafficSpec) -> bool {
    traffic.rate > 0.0
        && traffic.rate <= traffic.peak
        && traffic.smallest <= traffic.largest
        && traffic.largest > 0
        && f64::from(traffic.burst) >= f64::from(traffic.largest)
}

/// Whether a request can be served on an interface, apart from what is left of it.
pub(super) fn acceptable(flowspec: &FlowSpec, config: &InterfaceConfig) -> Result<(), Cause> {
    if !consistent(flowspec.traffic()) {
        return Err(Cause::BadFlowspec);
    }
    if let FlowSpec::Guaranteed { traffic, rate, .. } = flowspec {
        if config.guaranteed.is_none() {
            return Err(Cause::ServiceUnsupported);
        }
        if *rate < traffic.rate {
            return Err(Cause::BadFlowspec);
        }
    }
    if flowspec.traffic().largest > config.mtu {
        return Err(Cause::Mtu);
    }
    Ok(())
}
