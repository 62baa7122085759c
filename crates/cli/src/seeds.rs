//! Lists of seeds: `0..19`, or `0,3,5..7`; ranges are inclusive.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum number of seeds of one study.
const MAX_SEEDS: u64 = 1_000_000;

/// Seeds, each once, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

/// The runs of a study, each with its seed and folder: of all `seeds`, or else one in `out` itself.
pub(crate) fn runs(seeds: Option<&Seeds>, seed: u64, out: &Path) -> Vec<(u64, PathBuf)> {
    match seeds {
        Some(seeds) => {
            seeds.0.iter().map(|seed| (*seed, out.join(format!("seed-{seed}")))).collect()
        }
        None => vec![(seed, out.to_owned())],
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut seeds = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once("..") {
                Some((first, last)) => (seed(first)?, seed(last)?),
                None => (seed(part)?, seed(part)?),
            };
            if first > last {
                return Err(format!("`{part}` runs backwards; write {last}..{first}"));
            }
            if last - first >= MAX_SEEDS || seeds.len() as u64 + (last - first) >= MAX_SEEDS {
                return Err(format!("more than {MAX_SEEDS} seeds"));
            }
            seeds.extend(first..=last);
        }
        let mut seen = std::collections::BTreeSet::new();
        seeds.retain(|seed| seen.insert(*seed));
        Ok(Self(seeds))
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.parse().map_err(|_| format!("`{text}` is not a seed; write 0..19, or 0,3,5..7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<u64>, String> {
        text.parse().map(|Seeds(seeds)| seeds)
    }

    #[test]
    fn a_list_may_contain_seeds_and_inclusive_ranges() {
        assert_eq!(parse("4").unwrap(), [4]);
        assert_eq!(parse("0..3").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse("0, 3,5..7").unwrap(), [0, 3, 5, 6, 7]);
        assert_eq!(parse("2..4,3,9").unwrap(), [2, 3, 4, 9]);
        assert_eq!(parse("18446744073709551615").unwrap(), [u64::MAX]);
    }

    #[test]
    fn the_error_for_an_invalid_list_shows_the_format() {
        let form = "is not a seed; write 0..19, or 0,3,5..7";
        for (text, part) in [("", ""), ("1,", ""), ("a", "a"), ("-1", "-1"), ("1...3", ".3")] {
            assert_eq!(parse(text).unwrap_err(), format!("`{part}` {form}"));
        }
        assert_eq!(parse("7..5").unwrap_err(), "`7..5` runs backwards; write 5..7");
        assert_eq!(parse("0..18446744073709551615").unwrap_err(), "more than 1000000 seeds");
        assert_eq!(parse("0..999999,1000000").unwrap_err(), "more than 1000000 seeds");
    }
}
