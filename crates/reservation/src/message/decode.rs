use std::net::IpAddr;

use ontempo_foundation::Duration;

use super::body::{
    Ack, BUNDLE, Body, EPOCH_BITS, Message, MessageId, Path, PathErr, PathTear, RawObject, Resv,
    ResvConf, ResvErr, ResvTear, Srefresh, Unknown,
};
use super::dclass::{Dclass, Marked};
use super::error::ParseError;
use super::parts::{Descriptor, ErrorSpec, Hop, Sender, Session, Style};
use super::service::{AdSpec, FlowSpec, TrafficSpec};
use super::wire::{
    HEADER_LENGTH, INTSERV, IPV4, IPV6, Object, REFRESH_REDUCTION, Reader, checksum, class,
};

type Parsed<T> = Result<T, ParseError>;

/// The message type of a RESV.
const RESV: u8 = 2;

impl Message {
    /// Reads one message, which takes all of `bytes`. A checksum of zero is none (RFC 2205
    /// section 3.1.1). An INTEGRITY object is skipped: it must be checked before.
    ///
    /// # Errors
    /// Where the bytes are no valid message. An unknown object alone is no error: it is in
    /// [`Message::unknown`], so that the node can send PathErr or ResvErr.
    pub fn decode(bytes: &[u8]) -> Result<Self, ParseError> {
        match split(bytes)? {
            (message, []) => read(message, false),
            _ => Err(ParseError::Trailing),
        }
    }
}

/// Splits off the first message, by the length in its header.
fn split(bytes: &[u8]) -> Parsed<(&[u8], &[u8])> {
    let header: &[u8; HEADER_LENGTH] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    let length = usize::from(u16::from_be_bytes([header[6], header[7]]));
    if length < HEADER_LENGTH {
        return Err(ParseError::Truncated);
    }
    bytes.split_at_checked(length).ok_or(ParseError::Truncated)
}

fn read(bytes: &[u8], bundled: bool) -> Parsed<Message> {
    let (header, rest) = bytes.split_at_checked(HEADER_LENGTH).ok_or(ParseError::Truncated)?;
    if header[0] >> 4 != 1 {
        return Err(ParseError::Version(header[0] >> 4));
    }
    if header[2..4] != [0, 0] && checksum(bytes) != 0 {
        return Err(ParseError::Checksum);
    }
    let mut objects = Objects { is_resv: header[1] == RESV, ..Objects::default() };
    let body = if header[1] == BUNDLE {
        if bundled {
            return Err(ParseError::NestedBundle);
        }
        Body::Bundle(objects.bundle(rest)?)
    } else {
        objects.collect(rest)?;
        objects.body(header[1])?
    };
    objects.nothing_left()?;
    Ok(Message {
        send_ttl: header[4],
        refresh_reduction: header[0] & REFRESH_REDUCTION != 0,
        id: objects.id,
        acks: objects.acks,
        body,
        forwarded: objects.forwarded,
        unknown: objects.unknown,
    })
}

/// The first object and what follows it.
fn next_object(bytes: &[u8]) -> Parsed<(Object<'_>, &[u8])> {
    let &[high, low, class, ctype] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < 4 || !length.is_multiple_of(4) {
        return Err(ParseError::ObjectLength(class));
    }
    let (object, rest) = bytes.split_at_checked(length).ok_or(ParseError::ObjectLength(class))?;
    Ok((Object { class, ctype, body: &object[4..] }, rest))
}

/// A flowspec with what follows it, before the style says what belongs together.
struct Written {
    flowspec: FlowSpec,
    /// A DCLASS before the filters.
    dclass: Dclass,
    /// With a DCLASS behind each.
    filters: Vec<(Sender, Dclass)>,
}

impl Written {
    fn senders(self) -> impl Iterator<Item = Sender> {
        self.filters.into_iter().map(|(sender, _)| sender)
    }
}

/// The objects of a message, before they are checked against its type.
#[derive(Default)]
struct Objects {
    acks: Vec<Ack>,
    id: Option<MessageId>,
    session: Option<Session>,
    hop: Option<Hop>,
    refresh: Option<Duration>,
    error: Option<ErrorSpec>,
    scope: Vec<IpAddr>,
    style: Option<Style>,
    confirm: Option<IpAddr>,
    sender: Option<Sender>,
    traffic: Option<TrafficSpec>,
    adspec: Option<AdSpec>,
    /// Flow descriptors in their order, as flowspecs and the filters after each.
    flows: Vec<Written>,
    /// A DCLASS before all flowspecs.
    dclass: Dclass,
    is_resv: bool,
    /// Filters before any flowspec: those of a ResvTear.
    filters: Vec<Sender>,
    refreshed: Option<Srefresh>,
    challenge: Option<(u64, Vec<u8>)>,
    forwarded: Vec<RawObject>,
    unknown: Option<Unknown>,
    /// Whether IPv4 and IPv6 addresses were seen.
    families: [bool; 2],
}

impl Objects {
    fn collect(&mut self, mut rest: &[u8]) -> Parsed<()> {
        while !rest.is_empty() {
            let (object, after) = next_object(rest)?;
            self.take(object)?;
            rest = after;
        }
        if self.families == [true, true] {
            return Err(ParseError::MixedFamilies);
        }
        Ok(())
    }

    /// Messages that a bundle holds, behind acknowledgements and a number of its own.
    fn bundle(&mut self, mut rest: &[u8]) -> Parsed<Vec<Message>> {
        // An object's first half is its length, of which even 65,532 differs from a header's
        // version and type only in what follows: RFC 2961 puts acknowledgements first, and their
        // length of 12 cannot be a header's first byte.
        while rest.first() == Some(&0) {
            let (object, after) = next_object(rest)?;
            self.take(object)?;
            rest = after;
        }
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let (message, after) = split(rest)?;
            messages.push(read(message, true)?);
            rest = after;
        }
        Ok(messages)
    }

    fn take(&mut self, object: Object<'_>) -> Parsed<()> {
        let Object { class, ctype, body } = object;
        if !ctype_known(class, ctype) {
            self.refuse(object);
            return Ok(());
        }
        if has_addresses(class) {
            self.families[usize::from(ctype == IPV6)] = true;
        }
        match class {
            class::NULL | class::INTEGRITY => Ok(()),
            class::SESSION => once(&mut self.session, class, Session::read(ctype, body)),
            class::RSVP_HOP => once(&mut self.hop, class, Hop::read(ctype, body)),
            class::TIME_VALUES => once(&mut self.refresh, class, time_values(body)),
            class::ERROR_SPEC => once(&mut self.error, class, ErrorSpec::read(ctype, body)),
            class::SCOPE => {
                self.scope.extend(scope(ctype, body).ok_or(ParseError::Malformed(class))?);
                Ok(())
            }
            class::STYLE => once(&mut self.style, class, style(body)),
            class::FLOWSPEC => {
                let flowspec = FlowSpec::read_object(body).ok_or(ParseError::Malformed(class))?;
                let dclass = Dclass::NONE;
                self.flows.push(Written { flowspec, dclass, filters: Vec::new() });
                Ok(())
            }
            class::FILTER_SPEC => self.filter(Sender::read(ctype, body)),
            class::SENDER_TEMPLATE => once(&mut self.sender, class, Sender::read(ctype, body)),
            class::SENDER_TSPEC => once(&mut self.traffic, class, TrafficSpec::read_object(body)),
            class::ADSPEC => once(&mut self.adspec, class, AdSpec::read_object(body)),
            class::RESV_CONFIRM => once(&mut self.confirm, class, address(ctype, body)),
            class::MESSAGE_ID => once(&mut self.id, class, message_id(body)),
            class::MESSAGE_ID_ACK => {
                let ack = ack(ctype == 2, body).ok_or(ParseError::Malformed(class))?;
                self.acks.push(ack);
                Ok(())
            }
            class::MESSAGE_ID_LIST => once(&mut self.refreshed, class, id_list(body)),
            class::CHALLENGE => once(&mut self.challenge, class, challenge(body)),
            // Other messages have no use for it yet: it is forwarded as it came.
            class::DCLASS if self.is_resv => {
                let dclass = Dclass::read(body).ok_or(ParseError::Malformed(class))?;
                let place = match self.flows.last_mut() {
                    None => &mut self.dclass,
                    Some(Written { dclass, filters, .. }) => {
                        filters.last_mut().map_or(dclass, |(_, dclass)| dclass)
                    }
                };
                *place = place.or(dclass);
                Ok(())
            }
            _ => {
                self.refuse(object);
                Ok(())
            }
        }
    }

    fn filter(&mut self, filter: Option<Sender>) -> Parsed<()> {
        let filter = filter.ok_or(ParseError::Malformed(class::FILTER_SPEC))?;
        match self.flows.last_mut() {
            Some(flow) => flow.filters.push((filter, Dclass::NONE)),
            None => self.filters.push(filter),
        }
        Ok(())
    }

    /// RFC 2205 section 3.10: by the class number's high bits, refuse (0), ignore (10) or forward
    /// (11). POLICY_DATA (section A.13) is not evaluated, but forwarded.
    fn refuse(&mut self, object: Object<'_>) {
        let Object { class, ctype, body } = object;
        if class >> 6 == 0b11 || class == class::POLICY_DATA {
            self.forwarded.push(RawObject { class, ctype, body: body.to_vec() });
        } else if class >> 7 == 0 && self.unknown.is_none() {
            self.unknown = Some(Unknown { class, ctype, class_known: class_known(class) });
        }
    }

    fn body(&mut self, kind: u8) -> Parsed<Body> {
        Ok(match kind {
            1 => Body::Path(self.path()?),
            2 => Body::Resv(self.resv()?),
            3 => Body::PathErr(PathErr {
                session: need(&mut self.session, class::SESSION)?,
                error: need(&mut self.error, class::ERROR_SPEC)?,
                sender: need(&mut self.sender, class::SENDER_TEMPLATE)?,
                traffic: need(&mut self.traffic, class::SENDER_TSPEC)?,
            }),
            4 => Body::ResvErr(self.resv_err()?),
            5 => {
                // SENDER_TSPEC and ADSPEC are allowed and ignored (section 3.1.5).
                (self.traffic, self.adspec) = (None, None);
                Body::PathTear(PathTear {
                    session: need(&mut self.session, class::SESSION)?,
                    hop: need(&mut self.hop, class::RSVP_HOP)?,
                    sender: need(&mut self.sender, class::SENDER_TEMPLATE)?,
                })
            }
            6 => Body::ResvTear(self.resv_tear()?),
            7 => {
                let style = need(&mut self.style, class::STYLE)?;
                Body::ResvConf(ResvConf {
                    session: need(&mut self.session, class::SESSION)?,
                    error: need(&mut self.error, class::ERROR_SPEC)?,
                    confirm: need(&mut self.confirm, class::RESV_CONFIRM)?,
                    style,
                    flows: self.descriptors(style)?,
                })
            }
            13 => Body::Ack,
            15 => Body::Srefresh(need(&mut self.refreshed, class::MESSAGE_ID_LIST)?),
            25 => {
                let (key, cookie) = need(&mut self.challenge, class::CHALLENGE)?;
                Body::Challenge { key, cookie }
            }
            26 => {
                let (key, cookie) = need(&mut self.challenge, class::CHALLENGE)?;
                Body::Response { key, cookie }
            }
            _ => return Err(ParseError::MessageType(kind)),
        })
    }

    fn path(&mut self) -> Parsed<Path> {
        Ok(Path {
            session: need(&mut self.session, class::SESSION)?,
            hop: need(&mut self.hop, class::RSVP_HOP)?,
            refresh: need(&mut self.refresh, class::TIME_VALUES)?,
            sender: need(&mut self.sender, class::SENDER_TEMPLATE)?,
            traffic: need(&mut self.traffic, class::SENDER_TSPEC)?,
            adspec: self.adspec.take(),
        })
    }

    fn resv(&mut self) -> Parsed<Resv> {
        let style = need(&mut self.style, class::STYLE)?;
        Ok(Resv {
            session: need(&mut self.session, class::SESSION)?,
            hop: need(&mut self.hop, class::RSVP_HOP)?,
            refresh: need(&mut self.refresh, class::TIME_VALUES)?,
            confirm: self.confirm.take(),
            scope: core::mem::take(&mut self.scope),
            style,
            flows: self.flows(style)?,
        })
    }

    fn resv_err(&mut self) -> Parsed<ResvErr> {
        let style = need(&mut self.style, class::STYLE)?;
        let [flow] = <[Descriptor; 1]>::try_from(self.descriptors(style)?)
            .map_err(|_| ParseError::Descriptors)?;
        Ok(ResvErr {
            session: need(&mut self.session, class::SESSION)?,
            hop: need(&mut self.hop, class::RSVP_HOP)?,
            error: need(&mut self.error, class::ERROR_SPEC)?,
            scope: core::mem::take(&mut self.scope),
            style,
            flow,
        })
    }

    /// Flowspecs are allowed and ignored (RFC 2205 section 3.1.6).
    fn resv_tear(&mut self) -> Parsed<ResvTear> {
        let mut filters = core::mem::take(&mut self.filters);
        filters.extend(core::mem::take(&mut self.flows).into_iter().flat_map(Written::senders));
        let style = need(&mut self.style, class::STYLE)?;
        if (style == Style::Wildcard) != filters.is_empty() {
            return Err(ParseError::Descriptors);
        }
        Ok(ResvTear {
            session: need(&mut self.session, class::SESSION)?,
            hop: need(&mut self.hop, class::RSVP_HOP)?,
            scope: core::mem::take(&mut self.scope),
            style,
            filters,
        })
    }

    /// Flow descriptors without their DCLASS, which only a RESV has.
    fn descriptors(&mut self, style: Style) -> Parsed<Vec<Descriptor>> {
        Ok(self.flows(style)?.into_iter().map(|flow| flow.descriptor).collect())
    }

    /// Flow descriptors as the style has them (RFC 2205 section 3.1.4): under FF a filter after
    /// the first one of a flowspec has the flowspec before it.
    ///
    /// RFC 2996 does not say where a DCLASS stands. Behind a filter it is the filter's, and under the
    /// other styles its descriptor's; one before them is for those that have none of their own.
    fn flows(&mut self, style: Style) -> Parsed<Vec<Marked>> {
        let flows = core::mem::take(&mut self.flows);
        let of_all = core::mem::take(&mut self.dclass);
        let fits = match (style, flows.as_slice()) {
            (Style::Wildcard, [flow]) => flow.filters.is_empty(),
            (Style::SharedExplicit, [flow]) => !flow.filters.is_empty(),
            (Style::FixedFilter, [_, ..]) => flows.iter().all(|flow| !flow.filters.is_empty()),
            _ => false,
        };
        if !fits {
            return Err(ParseError::Descriptors);
        }
        let inner = |inner: Dclass, outer| if inner.is_empty() { outer } else { inner };
        let mut marked = Vec::new();
        for Written { flowspec, dclass, filters } in flows {
            let dclass = inner(dclass, of_all);
            if style == Style::FixedFilter {
                marked.extend(filters.into_iter().map(|(sender, own)| Marked {
                    descriptor: Descriptor { flowspec, filters: vec![sender] },
                    dclass: inner(own, dclass),
                }));
                continue;
            }
            let of_filters = filters.iter().fold(Dclass::NONE, |all, (_, own)| all.or(*own));
            let filters = filters.into_iter().map(|(sender, _)| sender).collect();
            let descriptor = Descriptor { flowspec, filters };
            marked.push(Marked { descriptor, dclass: inner(of_filters, dclass) });
        }
        Ok(marked)
    }

    /// Refuses objects that this message type does not have.
    fn nothing_left(&self) -> Parsed<()> {
        let left = [
            (self.session.is_some(), class::SESSION),
            (self.hop.is_some(), class::RSVP_HOP),
            (self.refresh.is_some(), class::TIME_VALUES),
            (self.error.is_some(), class::ERROR_SPEC),
            (!self.scope.is_empty(), class::SCOPE),
            (self.style.is_some(), class::STYLE),
            (self.confirm.is_some(), class::RESV_CONFIRM),
            (self.sender.is_some(), class::SENDER_TEMPLATE),
            (self.traffic.is_some(), class::SENDER_TSPEC),
            (!self.flows.is_empty(), class::FLOWSPEC),
            (!self.filters.is_empty(), class::FILTER_SPEC),
            (self.refreshed.is_some(), class::MESSAGE_ID_LIST),
            (self.challenge.is_some(), class::CHALLENGE),
        ];
        match left.into_iter().find(|(left, _)| *left) {
            Some((_, class)) => Err(ParseError::Misplaced(class)),
            None => Ok(()),
        }
    }
}

/// Sets what a message has once.
fn once<T>(place: &mut Option<T>, class: u8, value: Option<T>) -> Parsed<()> {
    let value = value.ok_or(ParseError::Malformed(class))?;
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ParseError::Repeated(class)),
    }
}

fn need<T>(place: &mut Option<T>, class: u8) -> Parsed<T> {
    place.take().ok_or(ParseError::Missing(class))
}

fn class_known(class: u8) -> bool {
    matches!(class, 0..=15 | 23..=25 | class::CHALLENGE | class::DCLASS) && class != 2
}

fn ctype_known(class: u8, ctype: u8) -> bool {
    match class {
        class::FLOWSPEC | class::SENDER_TSPEC | class::ADSPEC => ctype == INTSERV,
        class::INTEGRITY
        | class::TIME_VALUES
        | class::STYLE
        | class::MESSAGE_ID
        | class::MESSAGE_ID_LIST
        | class::CHALLENGE
        | class::DCLASS => ctype == 1,
        class::MESSAGE_ID_ACK => ctype == 1 || ctype == 2,
        _ if has_addresses(class) => ctype == IPV4 || ctype == IPV6,
        class::NULL => true,
        _ => false,
    }
}

fn has_addresses(class: u8) -> bool {
    matches!(
        class,
        class::SESSION
            | class::RSVP_HOP
            | class::ERROR_SPEC
            | class::SCOPE
            | class::FILTER_SPEC
            | class::SENDER_TEMPLATE
            | class::RESV_CONFIRM
    )
}

fn time_values(body: &[u8]) -> Option<Duration> {
    let mut from = Reader(body);
    let millis = from.u32()?;
    from.end(Duration::from_millis(u64::from(millis)))
}

fn scope(ctype: u8, body: &[u8]) -> Option<Vec<IpAddr>> {
    let mut from = Reader(body);
    let mut addresses = Vec::new();
    while !from.0.is_empty() {
        addresses.push(from.address(ctype)?);
    }
    Some(addresses)
}

fn style(body: &[u8]) -> Option<Style> {
    let mut from = Reader(body);
    let bits = from.u32()?;
    from.end(Style::of(bits)?)
}

fn address(ctype: u8, body: &[u8]) -> Option<IpAddr> {
    let mut from = Reader(body);
    let address = from.address(ctype)?;
    from.end(address)
}

/// Flags and the epoch.
fn flagged(from: &mut Reader<'_>) -> Option<(u8, u32)> {
    let word = from.u32()?;
    let [flags, ..] = word.to_be_bytes();
    Some((flags, word & ((1 << EPOCH_BITS) - 1)))
}

fn message_id(body: &[u8]) -> Option<MessageId> {
    let mut from = Reader(body);
    let (flags, epoch) = flagged(&mut from)?;
    let id = from.u32()?;
    from.end(MessageId { ack_desired: flags & 1 != 0, epoch, id })
}

fn ack(negative: bool, body: &[u8]) -> Option<Ack> {
    let mut from = Reader(body);
    let (_, epoch) = flagged(&mut from)?;
    let id = from.u32()?;
    from.end(Ack { negative, epoch, id })
}

fn id_list(body: &[u8]) -> Option<Srefresh> {
    let mut from = Reader(body);
    let (_, epoch) = flagged(&mut from)?;
    let mut ids = Vec::new();
    while !from.0.is_empty() {
        ids.push(from.u32()?);
    }
    (!ids.is_empty()).then_some(Srefresh { epoch, ids })
}

fn challenge(body: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut from = Reader(body);
    from.u16()?;
    let (high, low) = (from.u16()?, from.u32()?);
    Some((u64::from(high) << 32 | u64::from(low), from.0.to_vec()))
}
