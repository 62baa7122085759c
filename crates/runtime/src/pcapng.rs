//! The subset of the pcapng file format that a packet trace needs (IETF draft-ietf-opsawg-pcapng):
//! one section, one interface, then one block per packet.

use std::io::{self, Write};
use std::net::IpAddr;

use ontempo_foundation::Time;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const NAME_RESOLUTION: u32 = 4;
const ENHANCED_PACKET: u32 = 6;
/// Marks the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: (u16, u16) = (1, 0);
const LENGTH_UNKNOWN: u64 = u64::MAX;
/// Packets begin with their IP header.
const LINKTYPE_RAW: u16 = 101;

/// Records of a name resolution block.
const RECORD_END: u16 = 0;
const RECORD_IPV4: u16 = 1;
const RECORD_IPV6: u16 = 2;

const OPTION_END: u16 = 0;
const OPTION_APPLICATION: u16 = 4;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
/// The time unit is ten to the power of minus this, in seconds.
const NANOSECONDS: u8 = 9;

/// Writes the section header and its only interface, of which `snap_length` bytes of a packet are recorded
/// at most; 0 for all.
///
/// # Errors
/// If `out` cannot be written.
pub fn begin(out: &mut impl Write, interface: &str, snap_length: u32) -> io::Result<()> {
    let mut section = Vec::new();
    section.extend(BYTE_ORDER.to_le_bytes());
    section.extend(VERSION.0.to_le_bytes());
    section.extend(VERSION.1.to_le_bytes());
    section.extend(LENGTH_UNKNOWN.to_le_bytes());
    let application = concat!("ontempo ", env!("CARGO_PKG_VERSION"));
    option(&mut section, OPTION_APPLICATION, application.as_bytes());
    option(&mut section, OPTION_END, &[]);
    block(out, SECTION_HEADER, &section)?;

    let mut description = Vec::new();
    description.extend(LINKTYPE_RAW.to_le_bytes());
    description.extend([0, 0]);
    description.extend(snap_length.to_le_bytes());
    option(&mut description, OPTION_INTERFACE_NAME, interface.as_bytes());
    option(&mut description, OPTION_TIME_RESOLUTION, &[NANOSECONDS]);
    option(&mut description, OPTION_END, &[]);
    block(out, INTERFACE_DESCRIPTION, &description)
}

/// Writes the names of addresses, which readers show in their place.
///
/// # Errors
/// If `out` cannot be written.
pub fn names(out: &mut impl Write, names: &[(IpAddr, String)]) -> io::Result<()> {
    let mut records = Vec::new();
    for (address, name) in names {
        let (record, octets) = match address {
            IpAddr::V4(address) => (RECORD_IPV4, address.octets().to_vec()),
            IpAddr::V6(address) => (RECORD_IPV6, address.octets().to_vec()),
        };
        option(&mut records, record, &[octets.as_slice(), name.as_bytes(), &[0]].concat());
    }
    option(&mut records, RECORD_END, &[]);
    block(out, NAME_RESOLUTION, &records)
}

/// Writes one packet of `length` bytes, `captured` of which are recorded.
///
/// # Errors
/// If `out` cannot be written.
pub fn packet(out: &mut impl Write, time: Time, captured: &[u8], length: u32) -> io::Result<()> {
    const HEAD: usize = 28;
    let padding = padding(captured.len());
    let total = (HEAD + captured.len() + padding + 4) as u32;
    let nanos = time.as_nanos();
    let fields = [
        ENHANCED_PACKET,
        total,
        0,
        (nanos >> 32) as u32,
        nanos as u32,
        captured.len() as u32,
        length,
    ];
    let mut head = [0; HEAD];
    for (bytes, field) in head.chunks_exact_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
    out.write_all(&head)?;
    out.write_all(captured)?;
    out.write_all(&[0; 3][..padding])?;
    out.write_all(&total.to_le_bytes())
}

fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = (12 + body.len()) as u32;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total.to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&total.to_le_bytes())
}

/// A value too long for its length field is truncated.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.extend(&[0; 3][..padding(value.len())]);
}

/// Bytes that fill `length` up to a multiple of four.
fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}
