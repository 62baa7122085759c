use ontempo_foundation::{Bytes, Rate};

use super::boundary::InterfaceConfig;
use crate::message::{Cause, FlowSpec, Session, TrafficSpec};

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

    /// Other limits of the sums.
    pub(super) fn bound_by(&mut self, config: &InterfaceConfig) {
        self.reservable = config.reservable;
        self.reservable_burst = config.reservable_burst;
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
    /// What the flow takes of a link that adds `overhead` bytes to each packet: all of them may be as
    /// small as the minimum policed unit m, so that rate and burst grow by overhead / m (RFC 2215
    /// section 3.6). Rounded up; values beyond 64 bits saturate.
    pub(super) fn of(flowspec: &FlowSpec, session: &Session, overhead: Bytes) -> Self {
        let smallest = u64::from(flowspec.traffic().smallest).max(headers(session));
        let growth = 1.0 + overhead.get() as f64 / smallest as f64;
        let bytes = (f64::from(flowspec.reserved_rate()) * growth).ceil();
        let burst = (f64::from(flowspec.traffic().burst) * growth).ceil();
        // In whole bytes per second, which is what traffic control counts.
        let bits = (bytes as u64).saturating_mul(8);
        Self { rate: Rate::from_bits_per_sec(bits), burst: Bytes::new(burst as u64) }
    }
}

/// Headers of IP and of the transport: no packet of the session has fewer bytes, whatever its TSpec
/// says.
fn headers(session: &Session) -> u64 {
    let ip = if session.destination.is_ipv6() { 40 } else { 20 };
    let transport = match session.protocol {
        6 => 20,
        17 => 8,
        _ => 0,
    };
    ip + transport
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn udp(destination: &str) -> Session {
        Session { destination: destination.parse().unwrap(), protocol: 17, port: 5004 }
    }

    fn flow(rate: f32, burst: f32, smallest: u32) -> FlowSpec {
        let (peak, largest) = (f32::INFINITY, 1500);
        FlowSpec::ControlledLoad(TrafficSpec { rate, burst, peak, smallest, largest })
    }

    #[test]
    fn eighty_frames_a_second_take_their_ethernet_headers_too() {
        let flow = flow(80.0 * 1332.0, 2.0 * 1332.0, 1332);
        let share = Share::of(&flow, &udp("10.0.0.3"), Bytes::new(14));
        assert_eq!(share.rate, Rate::from_bits_per_sec(80 * 1346 * 8));
        assert_eq!(share.burst, Bytes::new(2 * 1346));
        let bare = Share::of(&flow, &udp("10.0.0.3"), Bytes::ZERO);
        assert_eq!(bare.rate, Rate::from_bits_per_sec(80 * 1332 * 8));
    }

    #[test]
    fn no_packet_is_smaller_than_its_headers_whatever_the_tspec_says() {
        for (destination, least) in [("10.0.0.3", 28), ("fd00::3", 48)] {
            let session = udp(destination);
            let share = |smallest| Share::of(&flow(1e4, 4e3, smallest), &session, Bytes::new(14));
            assert_eq!(share(0), share(least), "{destination}");
            assert!(share(least).rate > share(least + 1).rate, "{destination}");
        }
    }

    proptest! {
        /// A token bucket of the share on the link never makes a packet wait that conforms to the
        /// TSpec.
        #[test]
        fn what_conforms_to_the_tspec_conforms_on_the_link(
            rate in 1e3f32..1e6, burst in 1_500f32..20_000.0, smallest in 28u32..1_500, overhead in 0u64..100,
            packets in prop::collection::vec((0u32..1_472, 0.0f64..0.1), 1..200),
        ) {
            let session = udp("10.0.0.3");
            let share = Share::of(&flow(rate, burst, smallest), &session, Bytes::new(overhead));
            let (link_rate, link_burst) = (share.rate.as_bits_per_sec() as f64 / 8.0, share.burst.get() as f64);
            let (rate, burst) = (f64::from(rate), f64::from(burst));
            let (mut agreed, mut on_link) = (burst, link_burst);
            for (more, gap) in packets {
                let size = f64::from(28 + more);
                let counted = size.max(f64::from(smallest));
                // As soon as it conforms.
                let gap = gap.max((counted - agreed) / rate);
                agreed = (agreed + gap * rate).min(burst) - counted;
                on_link = (on_link + gap * link_rate).min(link_burst) - size - overhead as f64;
                prop_assert!(on_link >= -1e-3, "{on_link} bytes are missing");
            }
        }
    }
}
