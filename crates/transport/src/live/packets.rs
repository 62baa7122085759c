//! Datagrams of a UDP driver as an endpoint takes them, and the other way.

use noq_proto::EcnCodepoint;

use crate::{Source, Transmit};
use ontempo_udp::{Datagram, Ecn, Transmit as UdpTransmit};

impl From<&Datagram<'_>> for Source {
    fn from(datagram: &Datagram<'_>) -> Self {
        let ecn = match datagram.ecn {
            Ecn::NotCapable => None,
            Ecn::Capable0 => Some(EcnCodepoint::Ect0),
            Ecn::Capable1 => Some(EcnCodepoint::Ect1),
            Ecn::Congestion => Some(EcnCodepoint::Ce),
        };
        Self { remote: datagram.source, local: datagram.local, ecn }
    }
}

impl From<&Transmit> for UdpTransmit {
    fn from(transmit: &Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.local,
            ecn: match transmit.ecn {
                None => Ecn::NotCapable,
                Some(EcnCodepoint::Ect0) => Ecn::Capable0,
                Some(EcnCodepoint::Ect1) => Ecn::Capable1,
                Some(EcnCodepoint::Ce) => Ecn::Congestion,
            },
            dscp: transmit.dscp,
            segment: transmit.segment.and_then(|size| u16::try_from(size).ok()),
        }
    }
}
