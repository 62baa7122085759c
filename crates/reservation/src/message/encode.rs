use ontempo_foundation::Duration;

use super::body::{Ack, Body, EPOCH_BITS, KEY_BITS, Message, MessageId, Path, Resv};
use super::error::TooLong;
use super::parts::{Descriptor, ErrorSpec, Hop, Sender, Session, Style, millis, session_family};
use super::wire::{
    HEADER_LENGTH, INTSERV, IPV4, IPV6, REFRESH_REDUCTION, Writer, checksum, class, family,
    put_address,
};

/// Version 1 in the high half of the first byte, flags in the low one.
const VERSION: u8 = 0x10;

impl Message {
    /// The message as bytes, with its checksum.
    ///
    /// # Errors
    /// Where its length does not fit 16 bits.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut out = Writer::default();
        out.0.resize(HEADER_LENGTH, 0);
        for ack in &self.acks {
            out.ack(ack);
        }
        if let Some(id) = &self.id {
            out.message_id(id);
        }
        for object in &self.forwarded {
            out.object(object.class, object.ctype, |bytes| bytes.extend(&object.body));
        }
        out.body(&self.body)?;
        let mut bytes = out.0;
        let length = u16::try_from(bytes.len()).map_err(|_| TooLong { bytes: bytes.len() })?;
        bytes[0] = VERSION | if self.refresh_reduction { REFRESH_REDUCTION } else { 0 };
        bytes[1] = self.body.kind();
        bytes[4] = self.send_ttl;
        bytes[6..8].copy_from_slice(&length.to_be_bytes());
        // Zero means no checksum (RFC 2205 section 3.1.1); its complement is equivalent.
        let sum = match checksum(&bytes) {
            0 => 0xffff,
            sum => sum,
        };
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        Ok(bytes)
    }
}

impl Writer {
    fn body(&mut self, body: &Body) -> Result<(), TooLong> {
        match body {
            Body::Path(path) => self.path(path),
            Body::Resv(resv) => self.resv(resv),
            Body::PathErr(error) => {
                self.session(&error.session);
                self.error(&error.error);
                self.sender(class::SENDER_TEMPLATE, &error.sender);
                self.object(class::SENDER_TSPEC, INTSERV, |out| error.traffic.put_object(out));
            }
            Body::ResvErr(error) => {
                self.session(&error.session);
                self.hop(&error.hop);
                self.error(&error.error);
                self.scope(&error.scope);
                self.style(error.style);
                self.flows(core::slice::from_ref(&error.flow));
            }
            Body::PathTear(tear) => {
                self.session(&tear.session);
                self.hop(&tear.hop);
                self.sender(class::SENDER_TEMPLATE, &tear.sender);
            }
            Body::ResvTear(tear) => {
                self.session(&tear.session);
                self.hop(&tear.hop);
                self.scope(&tear.scope);
                self.style(tear.style);
                self.filters(&tear.filters);
            }
            Body::ResvConf(conf) => {
                self.session(&conf.session);
                self.error(&conf.error);
                self.address(class::RESV_CONFIRM, conf.confirm);
                self.style(conf.style);
                self.flows(&conf.flows);
            }
            Body::Bundle(messages) => {
                for message in messages {
                    self.0.extend(message.encode()?);
                }
            }
            Body::Ack => {}
            Body::Srefresh(refresh) => self.object(class::MESSAGE_ID_LIST, 1, |out| {
                out.extend(flagged(0, refresh.epoch));
                out.extend(refresh.ids.iter().flat_map(|id| id.to_be_bytes()));
            }),
            Body::Challenge { key, cookie } | Body::Response { key, cookie } => {
                self.object(class::CHALLENGE, 1, |out| {
                    let key = key & ((1 << KEY_BITS) - 1);
                    out.extend(key.to_be_bytes());
                    out.extend(cookie);
                });
            }
        }
        Ok(())
    }

    fn path(&mut self, path: &Path) {
        self.session(&path.session);
        self.hop(&path.hop);
        self.refresh(path.refresh);
        self.sender(class::SENDER_TEMPLATE, &path.sender);
        self.object(class::SENDER_TSPEC, INTSERV, |out| path.traffic.put_object(out));
        if let Some(adspec) = &path.adspec {
            self.object(class::ADSPEC, INTSERV, |out| adspec.put_object(out));
        }
    }

    fn resv(&mut self, resv: &Resv) {
        self.session(&resv.session);
        self.hop(&resv.hop);
        self.refresh(resv.refresh);
        if let Some(address) = resv.confirm {
            self.address(class::RESV_CONFIRM, address);
        }
        self.scope(&resv.scope);
        self.style(resv.style);
        for flow in &resv.flows {
            self.flows(core::slice::from_ref(&flow.descriptor));
            if !flow.dclass.is_empty() {
                self.object(class::DCLASS, 1, |out| flow.dclass.put(out));
            }
        }
    }

    fn ack(&mut self, ack: &Ack) {
        let ctype = if ack.negative { 2 } else { 1 };
        self.object(class::MESSAGE_ID_ACK, ctype, |out| {
            out.extend(flagged(0, ack.epoch));
            out.extend(ack.id.to_be_bytes());
        });
    }

    fn message_id(&mut self, id: &MessageId) {
        self.object(class::MESSAGE_ID, 1, |out| {
            out.extend(flagged(u8::from(id.ack_desired), id.epoch));
            out.extend(id.id.to_be_bytes());
        });
    }

    fn session(&mut self, session: &Session) {
        self.object(class::SESSION, session_family(session), |out| session.put(out));
    }

    fn hop(&mut self, hop: &Hop) {
        self.object(class::RSVP_HOP, family(hop.address), |out| hop.put(out));
    }

    fn sender(&mut self, class: u8, sender: &Sender) {
        self.object(class, family(sender.address), |out| sender.put(out));
    }

    fn error(&mut self, error: &ErrorSpec) {
        self.object(class::ERROR_SPEC, family(error.node), |out| error.put(out));
    }

    fn address(&mut self, class: u8, address: std::net::IpAddr) {
        self.object(class, family(address), |out| put_address(out, address));
    }

    fn refresh(&mut self, period: Duration) {
        self.object(class::TIME_VALUES, 1, |out| out.extend(millis(period).to_be_bytes()));
    }

    fn scope(&mut self, scope: &[std::net::IpAddr]) {
        for ctype in [IPV4, IPV6] {
            let of_family = || scope.iter().filter(|address| family(**address) == ctype);
            if of_family().next().is_some() {
                self.object(class::SCOPE, ctype, |out| {
                    of_family().for_each(|address| put_address(out, *address));
                });
            }
        }
    }

    fn style(&mut self, style: Style) {
        self.object(class::STYLE, 1, |out| out.extend(style.bits().to_be_bytes()));
    }

    fn flows(&mut self, flows: &[Descriptor]) {
        for flow in flows {
            self.object(class::FLOWSPEC, INTSERV, |out| flow.flowspec.put_object(out));
            self.filters(&flow.filters);
        }
    }

    fn filters(&mut self, filters: &[Sender]) {
        for filter in filters {
            self.sender(class::FILTER_SPEC, filter);
        }
    }
}

/// A byte of flags before the 24 bits of an epoch.
fn flagged(flags: u8, epoch: u32) -> [u8; 4] {
    (u32::from(flags) << EPOCH_BITS | epoch & ((1 << EPOCH_BITS) - 1)).to_be_bytes()
}
