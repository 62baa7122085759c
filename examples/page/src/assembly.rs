//! What has arrived of a page, and what of it can be painted.

use std::collections::BTreeMap;
use std::fmt;

use crate::jpeg::{JpegError, Layout, Run, layout_of, together};
use crate::page::Described;

/// The first byte of what is painted, which no JSON begins with.
const PAINT: u8 = 1;

/// Why a unit cannot be painted.
#[derive(Debug)]
pub enum AssemblyError {
    /// It is too short, or no description.
    Damaged,
    /// The tables of its picture are missing, or the page's description.
    TooEarly,
    /// The picture.
    Jpeg(JpegError),
}

impl fmt::Display for AssemblyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("a unit is damaged"),
            Self::TooEarly => f.write_str("a unit came before those that it depends on"),
            Self::Jpeg(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for AssemblyError {}

impl From<JpegError> for AssemblyError {
    fn from(why: JpegError) -> Self {
        Self::Jpeg(why)
    }
}

/// A JPEG to be decoded, and where its pixels belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paint {
    /// The number of the picture.
    pub picture: u16,
    /// These pixels will not change any more.
    pub is_final: bool,
    /// Where they belong.
    pub runs: Vec<Run>,
    /// What a decoder takes.
    pub jpeg: Vec<u8>,
}

impl Paint {
    /// As the browser gets it: 1, the lane, whether it is final, a byte 0, the picture, the number of runs, then five
    /// numbers for each run (from, x, y, width, height), all of two bytes; then the JPEG.
    #[must_use]
    pub fn to_bytes(&self, lane: u8) -> Vec<u8> {
        let mut bytes = vec![PAINT, lane, u8::from(self.is_final), 0];
        // Sides of pictures and pieces have 16 bits.
        let mut put = |number: usize| bytes.extend_from_slice(&(number as u16).to_be_bytes());
        put(usize::from(self.picture));
        put(self.runs.len());
        for run in &self.runs {
            [run.from, run.x, run.y, run.width, run.height].into_iter().for_each(&mut put);
        }
        bytes.extend_from_slice(&self.jpeg);
        bytes
    }
}

/// What a unit was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The page's description.
    Page(Described),
    /// Tables, of which nothing is seen.
    Tables,
    /// Something to be painted.
    Paint(Paint),
}

struct Arriving {
    layout: Layout,
    first: Vec<u8>,
    /// Of a progressive picture: its scans.
    scans: BTreeMap<u16, Vec<u8>>,
}

/// The receiving end of a page.
#[derive(Default)]
pub struct Assembly {
    described: Option<Described>,
    pictures: BTreeMap<u16, Arriving>,
}

impl Assembly {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a unit, after all that it depends on.
    ///
    /// # Errors
    /// If it is damaged, or came too early.
    pub fn take(&mut self, data: &[u8]) -> Result<Taken, AssemblyError> {
        let Some(described) = &self.described else {
            let described: Described =
                serde_json::from_slice(data).map_err(|_| AssemblyError::TooEarly)?;
            self.described = Some(described.clone());
            return Ok(Taken::Page(described));
        };
        let &[a, b, c, d, ref data @ ..] = data else { return Err(AssemblyError::Damaged) };
        let (picture, piece) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let Some(pieces) =
            described.pictures.get(usize::from(picture)).map(|picture| picture.pieces)
        else {
            return Err(AssemblyError::Damaged);
        };
        if piece == 0 {
            let (layout, first) = (layout_of(data)?, data.to_vec());
            self.pictures.insert(picture, Arriving { layout, first, scans: BTreeMap::new() });
            return Ok(Taken::Tables);
        }
        let arriving = self.pictures.get_mut(&picture).ok_or(AssemblyError::TooEarly)?;
        let layout = arriving.layout;
        if !layout.is_progressive {
            let number = usize::from(piece) - 1;
            let jpeg = layout.alone(&arriving.first, number, data)?;
            return Ok(Taken::Paint(Paint {
                picture,
                is_final: true,
                runs: layout.runs(number),
                jpeg,
            }));
        }
        arriving.scans.insert(piece, data.to_vec());
        let jpeg = together(&arriving.first, arriving.scans.values().map(Vec::as_slice));
        let is_final = arriving.scans.len() + 1 == pieces;
        let run = Run { from: 0, x: 0, y: 0, width: layout.width, height: layout.height };
        Ok(Taken::Paint(Paint { picture, is_final, runs: vec![run], jpeg }))
    }
}
