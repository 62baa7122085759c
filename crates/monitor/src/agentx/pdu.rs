//! Parts of messages that the library does not encode or read: its octet strings are text, which an
//! address is not.

use std::io;

use agentx::ByteOrder;
use agentx::encodings::ID;
use agentx::pdu::{Header, ResError, Response};

use super::HEADER;
use crate::mib::{Oid, Value};

/// The order of our own messages.
const ORDER: ByteOrder = ByteOrder::LittleEndian;
/// Offset of the payload length in a header (RFC 2741, 6.1).
const LENGTH_AT: usize = 16;

/// Fields of a master's response besides objects (RFC 2741, 6.2.16).
#[derive(Debug)]
pub(super) struct Reply {
    /// The master's uptime, in hundredths of a second.
    pub(super) up: u32,
    pub(super) error: ResError,
}

impl Reply {
    /// Parses a response.
    pub(super) fn read(message: &[u8]) -> io::Result<Self> {
        let order = order_of(message);
        let rest = message.get(HEADER..).unwrap_or_default();
        let up = rest.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        let up = match order {
            ByteOrder::BigEndian => u32::from_be_bytes(*up),
            ByteOrder::LittleEndian => u32::from_le_bytes(*up),
        };
        let error = ResError::from_bytes(rest.get(4..).unwrap_or_default(), &order)?;
        Ok(Self { up, error })
    }
}

/// The order of a message's numbers, as its flags have it (RFC 2741, 6.1).
fn order_of(message: &[u8]) -> ByteOrder {
    match message.get(2) {
        Some(flags) if flags & 0x10 != 0 => ByteOrder::BigEndian,
        _ => ByteOrder::LittleEndian,
    }
}

/// The objects of a `TestSet` (RFC 2741, 5.4 and 6.2.10); `None` if it is malformed. A name that is too
/// long, or a value that is no integer, is one that nobody can set, whatever its octets are.
pub(super) fn settings(message: &[u8]) -> Option<Vec<(Oid, Value)>> {
    let mut from = Fields { rest: message.get(HEADER..)?, order: order_of(message) };
    // NON_DEFAULT_CONTEXT.
    if message.get(2)? & 0x08 != 0 {
        from.octets()?;
    }
    let mut asked = Vec::new();
    while !from.rest.is_empty() {
        let kind = match from.order {
            ByteOrder::BigEndian => u16::from_be_bytes(*from.rest.first_chunk()?),
            ByteOrder::LittleEndian => u16::from_le_bytes(*from.rest.first_chunk()?),
        };
        // The kind, and two bytes that are reserved.
        from.take(4)?;
        let name = from.name()?;
        let mut value = Value::OctetString(Vec::new());
        match kind {
            2 => value = Value::Integer(from.word()?.cast_signed()),
            // Counter32, Gauge32, TimeTicks; Counter64.
            65..=67 => drop(from.word()?),
            70 => drop(from.take(8)?),
            // Octets, an address of IPv4, opaque.
            4 | 64 | 68 => from.octets()?,
            6 => drop(from.name()?),
            // Null, and that nothing is there.
            5 | 128..=130 => {}
            _ => return None,
        }
        asked.push((name, value));
    }
    Some(asked)
}

/// What is left of a message.
struct Fields<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u32> {
        let bytes = *self.take(4)?.first_chunk()?;
        Some(match self.order {
            ByteOrder::BigEndian => u32::from_be_bytes(bytes),
            ByteOrder::LittleEndian => u32::from_le_bytes(bytes),
        })
    }

    /// Octets, which are padded (5.3).
    fn octets(&mut self) -> Option<()> {
        let length = usize::try_from(self.word()?).ok()?;
        self.take(length.checked_next_multiple_of(4)?).map(drop)
    }

    /// An object identifier (5.1).
    fn name(&mut self) -> Option<Oid> {
        let words = usize::from(*self.rest.first()?);
        let bytes = self.take(4 + words * 4)?;
        let id = ID::from_bytes(bytes, &self.order).ok()?;
        Some(Oid::from_message(&id).unwrap_or_default())
    }
}

/// A response with these objects.
pub(super) fn response(to: &Header, objects: &[(Oid, Value)]) -> io::Result<Vec<u8>> {
    with_objects(Response::from_header(to).to_bytes()?, objects)
}

/// An error response with a code that the library does not have.
/// `index` is the place of the object, from 1.
pub(super) fn refusal(to: &Header, index: u16, error: u16) -> io::Result<Vec<u8>> {
    let mut response = Response::from_header(to);
    response.res_index = index;
    let mut bytes = response.to_bytes()?;
    // After the header: sysUpTime, then the error.
    if let Some(place) = bytes.get_mut(HEADER + 4..HEADER + 6) {
        place.copy_from_slice(&error.to_le_bytes());
    }
    Ok(bytes)
}

/// A message with objects at its end.
pub(super) fn with_objects(mut message: Vec<u8>, objects: &[(Oid, Value)]) -> io::Result<Vec<u8>> {
    for (name, value) in objects {
        put(&mut message, name, value);
    }
    let length = u32::try_from(message.len() - HEADER).map_err(io::Error::other)?;
    message[LENGTH_AT..HEADER].copy_from_slice(&length.to_le_bytes());
    Ok(message)
}

/// `VarBind` (RFC 2741, 5.4).
fn put(out: &mut Vec<u8>, name: &Oid, value: &Value) {
    let kind: u16 = match value {
        Value::Integer(_) => 2,
        Value::OctetString(_) => 4,
        Value::ObjectIdentifier(_) => 6,
        Value::Counter32(_) => 65,
        Value::Gauge32(_) => 66,
        Value::TimeTicks(_) => 67,
        Value::Counter64(_) => 70,
        Value::NoSuchObject => 128,
        Value::NoSuchInstance => 129,
        Value::EndOfMibView => 130,
    };
    out.extend(kind.to_le_bytes());
    out.extend([0, 0]);
    out.extend(name.to_message().to_bytes(&ORDER));
    match value {
        Value::Integer(number) => out.extend(number.to_le_bytes()),
        Value::Counter32(number) | Value::Gauge32(number) | Value::TimeTicks(number) => {
            out.extend(number.to_le_bytes());
        }
        Value::Counter64(number) => out.extend(number.to_le_bytes()),
        Value::ObjectIdentifier(id) => out.extend(id.to_message().to_bytes(&ORDER)),
        Value::OctetString(octets) => {
            // Longer ones have no place in a message of SNMP's either.
            let octets = &octets[..octets.len().min(usize::from(u16::MAX))];
            out.extend((octets.len() as u32).to_le_bytes());
            out.extend(octets);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfMibView => {}
    }
}

#[cfg(test)]
mod tests {
    use agentx::encodings::Value as Read;
    use agentx::pdu::Type;

    use super::*;

    #[test]
    fn what_is_written_is_read_by_the_library() {
        let name = Oid::of(&[&[1, 3, 6, 1, 2, 1, 51, 2, 1, 0]]);
        let values = [
            (Value::Integer(-7), Read::Integer(-7)),
            (Value::Gauge32(7), Read::Gauge32(7)),
            (Value::Counter64(1 << 40), Read::Counter64(1 << 40)),
            (Value::TimeTicks(9), Read::TimeTicks(9)),
            (Value::ObjectIdentifier(name.clone()), Read::ObjectIdentifier(name.to_message())),
            (Value::NoSuchInstance, Read::NoSuchInstance),
        ];
        let objects: Vec<_> = values.iter().map(|(one, _)| (name.clone(), one.clone())).collect();
        let bytes = response(&Header::new(Type::Get), &objects).unwrap();
        let read = Response::from_bytes(&bytes).unwrap().vb.unwrap().0;
        assert_eq!(read.len(), values.len());
        for (read, (_, expected)) in read.iter().zip(&values) {
            assert_eq!((&read.name, &read.data), (&name.to_message(), expected));
        }
    }

    #[test]
    fn an_address_keeps_its_octets_and_is_padded() {
        let mut bytes = Vec::new();
        put(&mut bytes, &Oid::default(), &Value::OctetString(vec![192, 0, 2, 255, 1]));
        assert_eq!(bytes[8..], [5, 0, 0, 0, 192, 0, 2, 255, 1, 0, 0, 0]);
    }
}
