//! Parts of messages that the library does not encode: its octet strings are text, which an
//! address is not.

use std::io;

use agentx::ByteOrder;
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
        let order = if message.get(2).is_some_and(|flags| flags & 0x10 != 0) {
            ByteOrder::BigEndian
        } else {
            ByteOrder::LittleEndian
        };
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
