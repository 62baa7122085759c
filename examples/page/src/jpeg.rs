//! Splits a JPEG into pieces that a decoder can take in any order, or after few others.
//!
//! The bits between two restart markers of a baseline JPEG depend on no others (ITU-T T.81, section E.1.4). The scans of a
//! progressive one depend on those that sent the same coefficients less precisely (section G.1.1), and on those that
//! defined their Huffman tables. As `examples/image/jpeg.py`, which has no progressive ones.

use std::fmt;
use std::ops::Range;

// Markers (T.81, table B.1).
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DQT: u8 = 0xdb;
const DRI: u8 = 0xdd;
const DHT: u8 = 0xc4;
const RST: Range<u8> = 0xd0..0xd8;
const BASELINE: u8 = 0xc0;
const PROGRESSIVE: u8 = 0xc2;
/// Frames of other kinds, and what is no frame among them.
const FRAMES: std::ops::RangeInclusive<u8> = 0xc1..=0xcf;
const NO_FRAMES: [u8; 3] = [DHT, 0xc8, 0xcc];

/// Maximum side of a picture, pixels: canvases of browsers are not larger, and 16 bits tell it.
const MAX_SIDE: usize = 8_192;

/// Maximum pieces of a picture. A picture with more is not for a page.
const MAX_PIECES: usize = 20_000;

/// Maximum scans: each may depend on all before it, of which a unit can name 32.
const MAX_SCANS: usize = 31;

/// Why a file or a piece cannot be split or drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JpegError(String);

impl fmt::Display for JpegError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JpegError {}

fn error<T>(text: impl Into<String>) -> Result<T, JpegError> {
    Err(JpegError(text.into()))
}

/// What the frame of a picture says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Width, pixels.
    pub width: usize,
    /// Height, pixels.
    pub height: usize,
    /// Whether each piece after the first is a scan of the whole picture; else it is an interval.
    pub is_progressive: bool,
    unit_width: usize,
    unit_height: usize,
    /// Units between two restart markers.
    interval: usize,
    /// Where the frame says its height; the width follows it: two bytes each.
    size_at: usize,
}

/// A part of an interval that is drawn alone, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the interval, whose units stand in one row; pixels.
    pub from: usize,
    /// Its place in the picture.
    pub x: usize,
    /// Its place in the picture.
    pub y: usize,
    /// Its width, without what is beyond the picture.
    pub width: usize,
    /// Its height, likewise.
    pub height: usize,
}

/// A part of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Pieces without which it cannot be drawn.
    pub depends_on: Vec<usize>,
    /// Pixels of which nothing was shown before it.
    pub pixels: usize,
}

/// A picture in pieces; the first has what all others need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// What its frame says.
    pub layout: Layout,
    /// The pieces.
    pub pieces: Vec<Piece>,
}

impl Layout {
    fn across(&self) -> usize {
        self.width.div_ceil(self.unit_width)
    }

    fn units(&self) -> usize {
        self.across() * self.height.div_ceil(self.unit_height)
    }

    fn intervals(&self) -> usize {
        self.units().div_ceil(self.interval)
    }

    fn span(&self, number: usize) -> Range<usize> {
        let begin = number * self.interval;
        begin..(begin + self.interval).min(self.units())
    }

    /// Where an interval belongs in the picture.
    #[must_use]
    pub fn runs(&self, number: usize) -> Vec<Run> {
        let (span, mut runs) = (self.span(number), Vec::new());
        let mut unit = span.start;
        while unit < span.end {
            // Up to the end of a row of the picture.
            let (down, across) = (unit / self.across(), unit % self.across());
            let count = (span.end - unit).min(self.across() - across);
            let (x, y) = (across * self.unit_width, down * self.unit_height);
            runs.push(Run {
                from: (unit - span.start) * self.unit_width,
                x,
                y,
                width: (count * self.unit_width).min(self.width - x),
                height: self.unit_height.min(self.height - y),
            });
            unit += count;
        }
        runs
    }

    /// A JPEG of one interval, with its units in one row.
    ///
    /// # Errors
    /// If there is no such interval.
    pub fn alone(&self, tables: &[u8], number: usize, data: &[u8]) -> Result<Vec<u8>, JpegError> {
        let width = self.span(number).len() * self.unit_width;
        if number >= self.intervals() || self.size_at + 4 > tables.len() {
            return error(format!("there is no interval {number}"));
        }
        let size = [self.unit_height as u16, width as u16].map(u16::to_be_bytes).concat();
        let (before, after) = (&tables[..self.size_at], &tables[self.size_at + 4..]);
        Ok([before, &size, after, data, &[0xff, EOI]].concat())
    }
}

/// A JPEG of the first piece of a progressive picture and of some scans, in their order.
#[must_use]
pub fn together<'a>(head: &[u8], scans: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = head.to_vec();
    scans.for_each(|scan| file.extend_from_slice(scan));
    file.extend_from_slice(&[0xff, EOI]);
    file
}

/// A segment: its marker, and where its content is.
fn segment(data: &[u8], mut at: usize) -> Result<(u8, Range<usize>), JpegError> {
    if data.get(at).is_some_and(|byte| *byte != 0xff) {
        return error(format!("it is damaged: no marker at byte {at}"));
    }
    // Any number of FF may fill the space before a marker.
    while data.get(at) == Some(&0xff) {
        at += 1;
    }
    let Some(&[marker, high, low]) = data.get(at..at + 3) else {
        return error("it is truncated: it ends before its picture begins");
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if matches!(marker, 0 | 1 | SOI | EOI) || RST.contains(&marker) || length < 2 {
        return error(format!("it is damaged: marker FF {marker:02X} at byte {at}"));
    }
    if at + 1 + length > data.len() {
        return error("it is truncated: it ends before its picture begins");
    }
    Ok((marker, at + 3..at + 1 + length))
}

/// What comes before the first scan.
struct Head {
    layout: Layout,
    components: Vec<u8>,
    /// Where the frame ends, and where the data of the first scan begin.
    frame_end: usize,
    scan_begin: usize,
}

fn head(data: &[u8]) -> Result<Head, JpegError> {
    if data.get(..2) != Some(&[0xff, SOI]) {
        return error("it is no JPEG: the first two bytes are not FF D8");
    }
    let (mut at, mut interval) = (2, 0);
    let mut frame: Option<(bool, Range<usize>)> = None;
    loop {
        let (marker, place) = segment(data, at)?;
        at = place.end;
        match marker {
            BASELINE | 0xc1 | PROGRESSIVE if frame.is_none() => {
                frame = Some((marker == PROGRESSIVE, place));
            }
            marker if FRAMES.contains(&marker) && !NO_FRAMES.contains(&marker) => {
                return error(
                    "it is of a kind that is not drawn here: save it as a baseline or progressive JPEG",
                );
            }
            DRI if place.len() == 2 => {
                interval =
                    usize::from(u16::from_be_bytes([data[place.start], data[place.start + 1]]));
            }
            DRI => return error("its restart interval is damaged"),
            SOS => {
                let Some((is_progressive, frame)) = frame else {
                    return error("its scan begins before its frame");
                };
                return layout(data, is_progressive, frame, place, interval);
            }
            _ => {}
        }
    }
}

fn layout(
    data: &[u8],
    is_progressive: bool,
    frame: Range<usize>,
    scan: Range<usize>,
    interval: usize,
) -> Result<Head, JpegError> {
    let bytes = &data[frame.clone()];
    let &[bits, high, low, wide, narrow, count, ref parts @ ..] = bytes else {
        return error("its frame is damaged");
    };
    let height = usize::from(u16::from_be_bytes([high, low]));
    let width = usize::from(u16::from_be_bytes([wide, narrow]));
    if bits != 8 || parts.len() != 3 * usize::from(count) || !matches!(count, 1 | 3) {
        return error(format!(
            "it has {count} components of {bits} bits: 1 or 3 of 8 are drawn here"
        ));
    }
    if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
        return error(format!("it has {width} by {height} pixels: a side has 1 to {MAX_SIDE}"));
    }
    let factors =
        parts.chunks(3).map(|part| (usize::from(part[1] >> 4), usize::from(part[1] & 15)));
    if !factors.clone().all(|(across, down)| (1..=4).contains(&across) && (1..=4).contains(&down)) {
        return error("its frame is damaged: sampling factors are 1 to 4");
    }
    // One component alone is not interleaved: its units are single blocks (T.81, section A.2.2).
    let across =
        if count == 1 { 1 } else { factors.clone().map(|(across, _)| across).max().unwrap_or(1) };
    let down = if count == 1 { 1 } else { factors.map(|(_, down)| down).max().unwrap_or(1) };
    let size_at = frame.start + 1;
    let (unit_width, unit_height) = (8 * across, 8 * down);
    let layout =
        Layout { width, height, is_progressive, unit_width, unit_height, interval, size_at };
    let components = parts.chunks(3).map(|part| part[0]).collect();
    let head = Head { layout, components, frame_end: frame.end, scan_begin: scan.end };
    if is_progressive {
        return Ok(head);
    }
    let scan = &data[scan];
    if scan.first() != Some(&count) || !scan.ends_with(&[0, 63, 0]) {
        return error(
            "it has several scans: save it as a baseline JPEG with one, or as a progressive one",
        );
    }
    if interval == 0 {
        return error(
            "it has no restart markers, at which it could be split: save it with them (Pillow: \
             restart_marker_rows=1; jpegtran -restart 1), or as a progressive JPEG",
        );
    }
    if interval.min(layout.units()) * unit_width > usize::from(u16::MAX) {
        return error("its restart intervals are too long");
    }
    if layout.intervals() > MAX_PIECES {
        return error(format!("it has more than {MAX_PIECES} restart intervals"));
    }
    Ok(head)
}

/// The layout of a picture, from its first piece.
///
/// # Errors
/// If it is not of the form that [`split`] makes.
pub fn layout_of(first: &[u8]) -> Result<Layout, JpegError> {
    // The frame of a progressive picture is the end of its first piece: a scan is put behind it.
    const NO_SCAN: [u8; 5] = [0xff, SOS, 0, 3, 0];
    match head(first) {
        Ok(found) if !found.layout.is_progressive && found.scan_begin == first.len() => {
            Ok(found.layout)
        }
        Ok(_) => error("there is more than tables"),
        Err(why) => match head(&[first, &NO_SCAN].concat()) {
            Ok(found) if found.layout.is_progressive => Ok(found.layout),
            _ => Err(why),
        },
    }
}

/// Splits a JPEG: a baseline one at its restart markers, a progressive one into its scans.
///
/// # Errors
/// If it is no JPEG, has neither, or is truncated.
pub fn split(data: &[u8]) -> Result<Pieces, JpegError> {
    let head = head(data)?;
    if head.layout.is_progressive { scans(data, &head) } else { intervals(data, &head) }
}

/// Where entropy-coded data end: at the next marker that is not one of restart.
fn data_end(data: &[u8], mut at: usize) -> Result<usize, JpegError> {
    while at + 1 < data.len() {
        if data[at] == 0xff
            && data[at + 1] != 0
            && data[at + 1] != 0xff
            && !RST.contains(&data[at + 1])
        {
            return Ok(at);
        }
        at += 1;
    }
    error("it is truncated: it has no end")
}

fn intervals(data: &[u8], head: &Head) -> Result<Pieces, JpegError> {
    let (layout, begin) = (head.layout, head.scan_begin);
    let end = data_end(data, begin)?;
    if data[end + 1] != EOI {
        return error(format!("it is damaged: marker FF {:02X} at byte {end}", data[end + 1]));
    }
    let mut pieces =
        vec![Piece { data: data[..begin].to_vec(), depends_on: Vec::new(), pixels: 0 }];
    let (mut at, mut from) = (begin, begin);
    let mut push = |data: &[u8]| {
        let pixels = |run: &Run| run.width * run.height;
        let number = pieces.len() - 1;
        let pixels = if number < layout.intervals() {
            layout.runs(number).iter().map(pixels).sum()
        } else {
            0
        };
        pieces.push(Piece { data: data.to_vec(), depends_on: vec![0], pixels });
        number
    };
    while at + 1 < end {
        if data[at] == 0xff && RST.contains(&data[at + 1]) {
            let number = push(&data[from..at]);
            if usize::from(data[at + 1] - RST.start) != number % RST.len() {
                return error(format!(
                    "it is damaged: restart marker FF {:02X} at byte {at}",
                    data[at + 1]
                ));
            }
            at += 2;
            from = at;
        } else {
            at += 1;
        }
    }
    push(&data[from..end]);
    if pieces.len() - 1 != layout.intervals() {
        let found = pieces.len() - 1;
        return error(format!(
            "it has {found} of {} restart intervals: it is truncated or damaged",
            layout.intervals()
        ));
    }
    Ok(Pieces { layout, pieces })
}

/// What a scan has, for those that follow it.
#[derive(Default)]
struct Scan {
    components: Vec<u8>,
    band: Option<(u8, u8)>,
    /// Huffman tables that it uses and defines: class and place, as in DHT.
    uses: Vec<u8>,
    defines: Vec<u8>,
    /// It has something that all later scans need.
    is_for_all: bool,
}

/// Reads the header of a scan.
fn scan_header(body: &[u8], head: &Head, scan: &mut Scan) -> Result<(), JpegError> {
    let damaged = || error("the header of a scan is damaged");
    let Some((&count, rest)) = body.split_first() else { return damaged() };
    let count = usize::from(count);
    let [parts @ .., first, last, precision] = rest else { return damaged() };
    if parts.len() != 2 * count || first > last || *last > 63 {
        return damaged();
    }
    for part in parts.chunks(2) {
        if !head.components.contains(&part[0]) {
            return damaged();
        }
        scan.components.push(part[0]);
        // A first scan of DC values has tables of class 0, one that refines them none; others are of AC values.
        if *first > 0 {
            scan.uses.push(0x10 | (part[1] & 15));
        } else if precision >> 4 == 0 {
            scan.uses.push(part[1] >> 4);
        }
    }
    scan.band = Some((*first, *last));
    Ok(())
}

/// The places that a segment of Huffman tables defines (T.81, section B.2.4.2).
fn defined(mut body: &[u8], defines: &mut Vec<u8>) -> Result<(), JpegError> {
    while let Some((&place, rest)) = body.split_first() {
        let Some(counts) = rest.get(..16) else { return error("a Huffman table is damaged") };
        let values: usize = counts.iter().map(|count| usize::from(*count)).sum();
        defines.push(place);
        body = rest
            .get(16 + values..)
            .ok_or_else(|| JpegError("a Huffman table is damaged".into()))?;
    }
    Ok(())
}

fn scans(data: &[u8], head: &Head) -> Result<Pieces, JpegError> {
    let layout = head.layout;
    let first = Piece { data: data[..head.frame_end].to_vec(), depends_on: Vec::new(), pixels: 0 };
    let (mut pieces, mut known) = (vec![first], Vec::<Scan>::new());
    let (mut begin, mut at) = (head.frame_end, head.frame_end);
    // Tables before the frame.
    let mut early = Vec::new();
    let mut before = 2;
    while before < head.frame_end {
        let (marker, place) = segment(data, before)?;
        before = place.end;
        if marker == DHT {
            defined(&data[place], &mut early)?;
        }
    }
    let mut scan = Scan::default();
    loop {
        if data.get(at..at + 2) == Some(&[0xff, EOI]) {
            break;
        }
        let (marker, place) = segment(data, at)?;
        at = place.end;
        match marker {
            DHT => defined(&data[place], &mut scan.defines)?,
            DQT | DRI => scan.is_for_all = true,
            SOS => {
                scan_header(&data[place], head, &mut scan)?;
                at = data_end(data, at)?;
                let depends_on = needed(&scan, &known, &early)?;
                let pixels = if known.is_empty() { layout.width * layout.height } else { 0 };
                pieces.push(Piece { data: data[begin..at].to_vec(), depends_on, pixels });
                known.push(std::mem::take(&mut scan));
                begin = at;
                if known.len() > MAX_SCANS {
                    return error(format!("it has more than {MAX_SCANS} scans"));
                }
            }
            _ => {}
        }
    }
    if known
        .first()
        .is_none_or(|scan| scan.band != Some((0, 0)) || scan.components != head.components)
    {
        return error(
            "its first scan has not the DC values of all components: save it with the usual scans",
        );
    }
    Ok(Pieces { layout, pieces })
}

/// The pieces that a scan needs: what all need, the first scan, those of the same coefficients, its tables.
fn needed(scan: &Scan, known: &[Scan], early: &[u8]) -> Result<Vec<usize>, JpegError> {
    let shares = |other: &Scan| {
        let has_component = scan.components.iter().any(|one| other.components.contains(one));
        let has_band = scan
            .band
            .zip(other.band)
            .is_some_and(|(one, other)| one.0 <= other.1 && other.0 <= one.1);
        has_component && has_band
    };
    let mut needed = vec![0];
    for (number, other) in known.iter().enumerate() {
        let is_last = |table: &u8| {
            let defines = |scan: &Scan| scan.defines.contains(table);
            defines(other) && !defines(scan) && !known[number + 1..].iter().any(defines)
        };
        if number == 0 || other.is_for_all || shares(other) || scan.uses.iter().any(is_last) {
            needed.push(number + 1);
        }
    }
    let is_defined = |table: &&u8| {
        let there = [early, &scan.defines].iter().any(|some| some.contains(table));
        !there && !known.iter().any(|other| other.defines.contains(table))
    };
    if let Some(table) = scan.uses.iter().find(is_defined) {
        return error(format!("a scan uses Huffman table {table:#04x}, which is not there"));
    }
    Ok(needed)
}
