//! What is drawn.

use serde::{Deserialize, Serialize};

/// Size of the board, in its own units.
pub const WIDTH: i32 = 800;
/// Its height.
pub const HEIGHT: i32 = 500;

/// Bounds of the fields.
const MAX_POINTS: usize = 256;
const MAX_LETTERS: usize = 100;
const LINE_WIDTHS: std::ops::RangeInclusive<i32> = 1..=40;
const TEXT_SIZES: std::ops::RangeInclusive<i32> = 8..=96;

/// How far from a line's edge its blurred margin reaches.
const MARGIN: i32 = 1;

/// A place on the board.
type Point = (i32, i32);

/// An object on the board. Whoever paints it paints nothing outside its [`bounds`](Self::bounds).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Object {
    /// A line through points.
    Stroke {
        /// The points; at least one.
        points: Vec<Point>,
        /// Width of the line.
        width: i32,
        /// `#rrggbb`.
        colour: String,
    },
    /// A filled rectangle.
    Rectangle {
        /// A corner.
        from: Point,
        /// The opposite one.
        to: Point,
        /// `#rrggbb`.
        colour: String,
    },
    /// A line of text.
    Text {
        /// Its upper left corner.
        at: Point,
        /// The text.
        text: String,
        /// Height of its letters.
        size: i32,
        /// `#rrggbb`.
        colour: String,
    },
    /// Wipes the whole board.
    Wipe,
}

/// A rectangle that an object may paint on, its edges included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Its left edge.
    pub left: i32,
    /// Its upper edge.
    pub top: i32,
    /// Its right edge.
    pub right: i32,
    /// Its lower edge.
    pub bottom: i32,
}

impl Bounds {
    /// The whole board.
    pub const ALL: Self = Self { left: 0, top: 0, right: WIDTH, bottom: HEIGHT };

    fn around(points: &[Point], margin: i32) -> Self {
        let xs = || points.iter().map(|(x, _)| *x);
        let ys = || points.iter().map(|(_, y)| *y);
        Self {
            left: xs().min().unwrap_or(0) - margin,
            top: ys().min().unwrap_or(0) - margin,
            right: xs().max().unwrap_or(0) + margin,
            bottom: ys().max().unwrap_or(0) + margin,
        }
    }

    /// Whether they share a point: then the order of painting may be seen.
    #[must_use]
    pub fn touches(&self, other: &Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }
}

fn is_on_board((x, y): Point) -> bool {
    (0..=WIDTH).contains(&x) && (0..=HEIGHT).contains(&y)
}

fn is_colour(text: &str) -> bool {
    text.strip_prefix('#').is_some_and(|digits| {
        digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

impl Object {
    /// Itself, if its fields are within their bounds.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub fn check(self) -> Result<Self, String> {
        let (points, colour): (&[Point], &str) = match &self {
            Self::Stroke { points, width, colour } => {
                if points.is_empty() || points.len() > MAX_POINTS {
                    return Err(format!("points: a stroke has 1 to {MAX_POINTS}"));
                }
                if !LINE_WIDTHS.contains(width) {
                    return Err(format!("width {width}: a line's is 1 to 40"));
                }
                (points, colour)
            }
            Self::Rectangle { from, to, colour } => (&[*from, *to], colour),
            Self::Text { at, text, size, colour } => {
                if text.is_empty() || text.chars().count() > MAX_LETTERS {
                    return Err(format!("text: it has 1 to {MAX_LETTERS} letters"));
                }
                if !TEXT_SIZES.contains(size) {
                    return Err(format!("size {size}: letters have 8 to 96"));
                }
                (&[*at], colour)
            }
            Self::Wipe => return Ok(self),
        };
        if let Some(outside) = points.iter().find(|point| !is_on_board(**point)) {
            return Err(format!("{outside:?}: the board has {WIDTH} by {HEIGHT}"));
        }
        if !is_colour(colour) {
            return Err("colour: it is written #rrggbb".to_owned());
        }
        Ok(self)
    }

    /// Where it paints, at most. The page clips what it paints to this.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::Stroke { points, width, .. } => Bounds::around(points, width / 2 + 1 + MARGIN),
            Self::Rectangle { from, to, .. } => Bounds::around(&[*from, *to], MARGIN),
            Self::Text { at: (x, y), text, size, .. } => {
                // A letter is at most as wide as high, and one of Latin letters narrower.
                let tenths =
                    text.chars().map(|one| if one.is_ascii() { 7 } else { 12 }).sum::<i32>();
                let (right, bottom) = (x + tenths * size / 10 + MARGIN, y + size * 3 / 2 + MARGIN);
                Bounds { left: x - MARGIN, top: y - MARGIN, right, bottom }
            }
            Self::Wipe => Bounds::ALL,
        }
    }
}
