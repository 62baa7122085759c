//! A page as units.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::jpeg::{JpegError, split};

/// Maximum pictures of a page, and bytes of each.
const MAX_PICTURES: usize = 16;
const MAX_PICTURE_BYTES: usize = 4 << 20;

/// A file of the page.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its name, for messages.
    pub name: String,
    /// What it shows, for those who do not see it.
    pub alt: String,
    /// A JPEG.
    pub jpeg: Vec<u8>,
}

/// What the first unit says of a picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedPicture {
    /// What it shows.
    pub alt: String,
    /// Pixels.
    pub width: usize,
    /// Pixels.
    pub height: usize,
    /// Whether its pieces are scans.
    pub is_progressive: bool,
    /// How many pieces it has.
    pub pieces: usize,
}

/// The first unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The title.
    pub title: String,
    /// A paragraph.
    pub text: String,
    /// The pictures.
    pub pictures: Vec<DescribedPicture>,
}

/// A unit of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its bytes: the page's description, or the numbers of picture and piece, of two bytes each, and the piece.
    pub data: Vec<u8>,
    /// Units without which it cannot be painted.
    pub depends_on: Vec<u64>,
    /// Pixels of which nothing was shown before it.
    pub pixels: usize,
}

/// Why a page cannot be made.
#[derive(Debug)]
pub enum PageError {
    /// A picture cannot be split: its name, and why.
    Jpeg(String, JpegError),
    /// Too many pictures.
    TooMany,
    /// A picture with this name is too large.
    TooLarge(String),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jpeg(name, why) => write!(f, "{name}: {why}"),
            Self::TooMany => write!(f, "a page has at most {MAX_PICTURES} pictures"),
            Self::TooLarge(name) => {
                write!(f, "{name}: a picture has at most {} MiB", MAX_PICTURE_BYTES >> 20)
            }
        }
    }
}

impl std::error::Error for PageError {}

/// A page in units, in the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Page {
    units: Vec<Unit>,
}

/// Where a unit says its picture and piece.
pub(crate) fn place(picture: usize, piece: usize) -> [u8; 4] {
    let mut place = [0; 4];
    place[..2].copy_from_slice(&(picture as u16).to_be_bytes());
    place[2..].copy_from_slice(&(piece as u16).to_be_bytes());
    place
}

impl Page {
    /// Cuts a page into units.
    ///
    /// # Errors
    /// If a picture is no JPEG that can be split.
    pub fn new(title: &str, text: &str, pictures: &[Picture]) -> Result<Self, PageError> {
        if pictures.len() > MAX_PICTURES {
            return Err(PageError::TooMany);
        }
        let mut all = Vec::new();
        for picture in pictures {
            if picture.jpeg.len() > MAX_PICTURE_BYTES {
                return Err(PageError::TooLarge(picture.name.clone()));
            }
            let pieces =
                split(&picture.jpeg).map_err(|why| PageError::Jpeg(picture.name.clone(), why))?;
            all.push((picture, pieces));
        }
        let describe = |(picture, pieces): &(&Picture, crate::jpeg::Pieces)| DescribedPicture {
            alt: picture.alt.clone(),
            width: pieces.layout.width,
            height: pieces.layout.height,
            is_progressive: pieces.layout.is_progressive,
            pieces: pieces.pieces.len(),
        };
        let pictures = all.iter().map(describe).collect();
        let described = Described { title: title.to_owned(), text: text.to_owned(), pictures };
        let data = serde_json::to_vec(&described).unwrap_or_default();
        let mut units = vec![Unit { data, depends_on: Vec::new(), pixels: 0 }];
        for (picture, (_, pieces)) in all.into_iter().enumerate() {
            let first = units.len();
            for (number, piece) in pieces.pieces.into_iter().enumerate() {
                let data = [&place(picture, number)[..], &piece.data].concat();
                let mut depends_on: Vec<u64> =
                    piece.depends_on.iter().map(|on| (first + on) as u64).collect();
                if number == 0 {
                    depends_on.push(0);
                }
                units.push(Unit { data, depends_on, pixels: piece.pixels });
            }
        }
        Ok(Self { units })
    }

    /// Its units; their numbers are their places.
    #[must_use]
    pub fn units(&self) -> &[Unit] {
        &self.units
    }
}
