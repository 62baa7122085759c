//! Which protocol the properties select.

use std::fmt;

use ontempo_mechanisms::qos::Specification;
use ontempo_qos::QosOptions;

use crate::error::PropertyError;
use crate::selection::{Preference, TransportProperties};

/// A protocol under QoS sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// QUIC, always encrypted.
    Quic,
    /// TCP, without encryption.
    Tcp,
    /// UDP, without encryption.
    Udp,
}

impl Protocol {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "QUIC",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a protocol has a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    Always,
    Never,
    /// As it is asked for.
    Either,
}

/// Whether a specification allows loss.
pub(super) fn may_lose(specification: &Specification) -> bool {
    specification.loss.value.is_some_and(|loss| loss.as_thousandths() > 0)
}

/// Whether messages of this specification are never sent again over QUIC.
fn is_unreliable(specification: &Specification) -> bool {
    may_lose(specification) && specification.max_delay.value.is_none()
}

/// What a protocol has of the properties in which QoS sockets differ or refuse.
fn offered(protocol: Protocol, options: &QosOptions) -> [Has; 9] {
    let (quic, tcp) = (protocol == Protocol::Quic, protocol == Protocol::Tcp);
    let may_be_unreliable = is_unreliable(&options.send) && is_unreliable(&options.receive);
    let reliability = match protocol {
        Protocol::Quic if may_be_unreliable => Has::Either,
        Protocol::Quic | Protocol::Tcp => Has::Always,
        Protocol::Udp => Has::Never,
    };
    [
        reliability,
        Has::Always,
        if tcp { Has::Always } else { Has::Either },
        Has::Never,
        Has::Always,
        Has::Always,
        if quic || tcp { Has::Always } else { Has::Never },
        // Clocks are compared twice a second.
        Has::Always,
        Has::Always,
    ]
}

/// What is asked for, in the same order.
fn asked(properties: &TransportProperties) -> [(&'static str, Preference); 9] {
    [
        ("reliability", properties.reliability),
        ("preserve_msg_boundaries", properties.preserve_msg_boundaries),
        ("preserve_order", properties.preserve_order),
        ("multistreaming", properties.multistreaming),
        ("full_checksum_send", properties.full_checksum_send),
        ("full_checksum_recv", properties.full_checksum_recv),
        ("congestion_control", properties.congestion_control),
        ("keep_alive", properties.keep_alive),
        ("active_read_before_send", properties.active_read_before_send),
    ]
}

/// The property that excludes a protocol, and why.
fn conflict(
    protocol: Protocol,
    properties: &TransportProperties,
    options: &QosOptions,
) -> Option<(&'static str, String)> {
    let offered = offered(protocol, options);
    asked(properties).into_iter().zip(offered).find_map(|((name, preference), has)| {
        match (preference, has) {
            (Preference::Require, Has::Never) => {
                Some((name, format!("{protocol} does not have it")))
            }
            (Preference::Prohibit, Has::Always) => {
                Some((name, format!("{protocol} always has it")))
            }
            _ => None,
        }
    })
}

/// How well a protocol fits: what is preferred and there, avoided and not there.
fn fit(protocol: Protocol, properties: &TransportProperties, options: &QosOptions) -> i32 {
    let offered = offered(protocol, options);
    let each = asked(properties).into_iter().zip(offered);
    each.map(|((_, preference), has)| match (preference, has) {
        (Preference::Prefer, Has::Never) | (Preference::Avoid, Has::Always) => -1,
        (Preference::Prefer | Preference::Avoid, _) => 1,
        _ => 0,
    })
    .sum()
}

/// The protocol that the properties select: QUIC, or without security that of TCP and UDP which fits
/// best, TCP where both do.
///
/// # Errors
/// None has what is required, or lacks what is prohibited: the first property that excludes one.
pub(super) fn select(
    is_secure: bool,
    properties: &TransportProperties,
    options: &QosOptions,
) -> Result<Protocol, PropertyError> {
    properties.check_nowhere()?;
    if properties.partial_order {
        let why = "messages of a QoS socket name no others";
        return Err(PropertyError::not_provided("partial_order", why));
    }
    let candidates: &[Protocol] =
        if is_secure { &[Protocol::Quic] } else { &[Protocol::Tcp, Protocol::Udp] };
    let mut refused: Option<(&'static str, String)> = None;
    let mut best: Option<(i32, Protocol)> = None;
    for &protocol in candidates {
        match conflict(protocol, properties, options) {
            Some((name, why)) => match &mut refused {
                None => refused = Some((name, why)),
                Some((_, all)) => *all = format!("{all}; {name}: {why}"),
            },
            None => {
                let fit = fit(protocol, properties, options);
                if best.is_none_or(|(most, _)| fit > most) {
                    best = Some((fit, protocol));
                }
            }
        }
    }
    match (best, refused) {
        (Some((_, protocol)), _) => Ok(protocol),
        (None, Some((name, why))) => Err(PropertyError::not_provided(name, why)),
        (None, None) => Err(PropertyError::not_provided("transport", "there is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Preference::{Avoid, NoPreference, Prefer, Prohibit, Require};
    use ontempo_foundation::{Duration, Percent};
    use ontempo_mechanisms::qos::Term;

    fn selected(reliability: Preference, congestion_control: Preference) -> Protocol {
        let properties =
            TransportProperties { reliability, congestion_control, ..Default::default() };
        select(false, &properties, &QosOptions::default()).expect("there is one")
    }

    #[test]
    fn without_security_the_properties_select_between_tcp_and_udp() {
        assert_eq!(selected(Require, Require), Protocol::Tcp);
        assert_eq!(selected(Prefer, NoPreference), Protocol::Tcp);
        assert_eq!(selected(Avoid, NoPreference), Protocol::Udp);
        assert_eq!(selected(NoPreference, Prohibit), Protocol::Udp);
        assert_eq!(selected(NoPreference, NoPreference), Protocol::Tcp);
    }

    #[test]
    fn what_none_has_is_refused_with_the_reason_of_each() {
        let properties = TransportProperties { congestion_control: Prohibit, ..Default::default() };
        let error = select(false, &properties, &QosOptions::default()).expect_err("none");
        let why = "congestion_control: TCP always has it; reliability: UDP does not have it";
        assert_eq!(error.to_string(), why);
        let error = select(true, &properties, &QosOptions::default()).expect_err("none");
        assert_eq!(error.to_string(), "congestion_control: QUIC always has it");
        let many = TransportProperties { multistreaming: Require, ..Default::default() };
        let error = select(true, &many, &QosOptions::default()).expect_err("none");
        assert_eq!(error.property(), "multistreaming");
        let quiet = TransportProperties { keep_alive: Prohibit, ..Default::default() };
        let error = select(false, &quiet, &QosOptions::default()).expect_err("none");
        assert_eq!(error.property(), "keep_alive");
    }

    #[test]
    fn over_quic_the_specification_says_whether_reliability_can_be_prohibited() {
        let properties = TransportProperties { reliability: Prohibit, ..Default::default() };
        let error = select(true, &properties, &QosOptions::default()).expect_err("it repeats");
        assert_eq!(error.property(), "reliability");
        let lossy = Specification { loss: Term::firm(Percent::new(5)), ..Default::default() };
        let selected = select(true, &properties, &QosOptions::both(lossy));
        assert_eq!(selected, Ok(Protocol::Quic));
        let max_delay = Term::firm(Duration::from_millis(100));
        let repeated = Specification { max_delay, ..lossy };
        assert!(select(true, &properties, &QosOptions::both(repeated)).is_err());
    }

    #[test]
    fn what_no_transport_has_is_refused_here_too() {
        let properties = TransportProperties { zero_rtt_msg: Require, ..Default::default() };
        let error = select(true, &properties, &QosOptions::default()).expect_err("none");
        assert_eq!(error.property(), "zero_rtt_msg");
        let partial = TransportProperties { partial_order: true, ..Default::default() };
        let error = select(true, &partial, &QosOptions::default()).expect_err("none");
        assert_eq!(error.property(), "partial_order");
    }
}
