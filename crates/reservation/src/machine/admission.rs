use ontempo_foundation::{Bytes, Rate};

use super::boundary::InterfaceConfig;
use crate::message::{Cause, FlowSpec, TrafficSpec};

/// Admission control of one interface: the sums of the reserved rates and bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionControl {
    reservable: Rate,
    reservable_burst: Bytes,
    rate: Rate,
    burst: Bytes,
}

impl AdmissionControl {
    pub(super) fn new(config: &InterfaceConfig) -> Self {
        Self {
            reservable: config.reservable,
            reservable_burst: config.reservable_burst,
            rate: Rate::default(),
            burst: Bytes::ZERO,
        }
    }

    /// Sum of the reserved rates.
    pub(super) fn reserved(&self) -> Rate {
        self.rate
    }

    /// Admits `new` in place of `old`; changes nothing where it is refused.
    pub(super) fn replace(&mut self, old: Share, new: Share) -> Result<(), Cause> {
        let rate = u128::from(self.rate.as_bits_per_sec()) + u128::from(new.rate.as_bits_per_sec())
            - u128::from(old.rate.as_bits_per_sec());
        let burst = u128::from(self.burst.get()) + u128::from(new.burst.get())
            - u128::from(old.burst.get());
        // A request of no more than before is never refused, even if the link's rate has fallen.
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

/// The rate and burst that one reservation takes of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) rate: Rate,
    pub(super) burst: Bytes,
}

impl Share {
    /// Rounded up; values beyond 64 bits saturate.
    pub(super) fn of(flowspec: &FlowSpec) -> Self {
        let bits = (f64::from(flowspec.reserved_rate()) * 8.0).ceil();
        let burst = f64::from(flowspec.traffic().burst).ceil();
        Self { rate: Rate::from_bits_per_sec(bits as u64), burst: Bytes::new(burst as u64) }
    }
}

/// Whether a TSpec is consistent: 0 < r <= p, m <= M <= b (RFC 2211, RFC 2212, RFC 2215).
pub(super) fn consistent(traffic: &TrafficSpec) -> bool {
    traffic.rate > 0.0
        && traffic.rate <= traffic.peak
        && traffic.smallest <= traffic.largest
        && traffic.largest > 0
        && f64::from(traffic.burst) >= f64::from(traffic.largest)
}

/// Whether the interface offers the service of the flowspec, whatever is reserved on it.
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
