//! The parameters of `--generate`.

use std::fmt::Display;
use std::str::FromStr;

use ontempo_foundation::{Duration, Rate};
use ontempo_media::{Codec, GeneratedSound, GeneratorParameters, SizeRatios};

/// Reads NAME=VALUE with commas between them; what is not named has its default.
pub(super) fn parameters(text: &str) -> Result<GeneratorParameters, String> {
    let mut parameters = GeneratorParameters::default();
    let mut named: Vec<&str> = Vec::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (name, value) = one.split_once('=').unwrap_or((one, ""));
        let (name, value) = (name.trim(), value.trim());
        if named.contains(&name) {
            return Err(format!("{name} is given twice"));
        }
        named.push(name);
        set(&mut parameters, name, value).map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(parameters)
}

fn set(parameters: &mut GeneratorParameters, name: &str, value: &str) -> Result<(), String> {
    match name {
        "rate" => parameters.rate = rate(value)?,
        "pictures" => parameters.picture_rate = number(value, "pictures a second, such as 25")?,
        "key" => parameters.key_distance = number(value, "a number of pictures, such as 50")?,
        "b" => parameters.b_pictures = number(value, "a number of B pictures, 0 to 3")?,
        "sizes" => parameters.sizes = sizes(value)?,
        "vary" => parameters.variability = number(value, "a share, such as 0.5")?,
        "cbr" if value.is_empty() => parameters.is_constant = true,
        "cbr" => return Err("it takes no value".to_owned()),
        "sound" => {
            parameters.sound = match value {
                "none" => None,
                value => Some(GeneratedSound { rate: rate(value)?, ..GeneratedSound::default() }),
            }
        }
        "duration" => parameters.duration = value.parse::<Duration>().map_err(text)?,
        "seed" => parameters.seed = number(value, "a whole number")?,
        "codec" => {
            let all = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Unknown];
            let found = all.into_iter().find(|codec| codec.name() == value);
            let names = all.map(Codec::name).join(", ");
            parameters.codec = found.ok_or_else(|| format!("`{value}` is none of {names}"))?;
        }
        _ => {
            return Err(
                "it is none of rate, pictures, key, b, sizes, vary, cbr, sound, duration, seed, \
                        codec"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// With a unit, or as ffmpeg writes it: 4M, 128k.
fn rate(value: &str) -> Result<Rate, String> {
    match value.ends_with(['k', 'M', 'G']) {
        true => format!("{value}bit/s").parse().map_err(text),
        false => value.parse().map_err(text),
    }
}

/// KEY:REFERENCE:DISPOSABLE, or with B references before the last.
fn sizes(value: &str) -> Result<SizeRatios, String> {
    let wanted = "the ratios of key pictures, references and disposable pictures, such as 16:3:1; or with B \
                  references before the last, 16:3:1.2:1";
    let ratios: Result<Vec<f64>, String> =
        value.split(':').map(|ratio| number(ratio.trim(), wanted)).collect();
    match ratios?[..] {
        [key, reference, disposable] => {
            Ok(SizeRatios { key, reference, b_reference: reference, disposable })
        }
        [key, reference, b_reference, disposable] => {
            Ok(SizeRatios { key, reference, b_reference, disposable })
        }
        _ => Err(format!("`{value}` is not {wanted}")),
    }
}

fn number<T: FromStr>(value: &str, wanted: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is not {wanted}"))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_what_is_wrong_is_named() {
        let read = parameters(
            "rate=4M, pictures=29.97,key=60,b=1,sizes=8:3:1,vary=0,cbr,sound=96 kbit/s,duration=5 s,seed=7,codec=hevc",
        );
        let read = read.expect("valid parameters");
        assert_eq!(read.rate, Rate::from_bits_per_sec(4_000_000));
        assert_eq!((read.picture_rate, read.key_distance, read.b_pictures), (29.97, 60, 1));
        let sizes = SizeRatios { key: 8.0, reference: 3.0, b_reference: 3.0, disposable: 1.0 };
        assert_eq!((read.sizes, read.variability, read.is_constant), (sizes, 0.0, true));
        assert_eq!(read.sound.map(|sound| sound.rate), Some(Rate::from_bits_per_sec(96_000)));
        assert_eq!((read.duration, read.seed), (Duration::from_secs(5), 7));
        assert_eq!(read.codec, Codec::Hevc);
        assert_eq!(parameters(""), Ok(GeneratorParameters::default()));
        assert_eq!(parameters("sound=none").map(|read| read.sound), Ok(None));
        for (given, words) in [
            ("rate=4", "rate: "),
            ("speed=4", "speed: it is none of rate, pictures"),
            ("b=x", "b: `x` is not a number of B pictures, 0 to 3"),
            ("b=1,b=2", "b is given twice"),
            ("sizes=1:2", "sizes: `1:2` is not the ratios"),
            ("codec=vp8", "`vp8` is none of h264, hevc"),
            ("cbr=1", "cbr: it takes no value"),
        ] {
            let error = parameters(given).expect_err(given);
            assert!(error.contains(words), "{given}: {error}");
        }
    }
}
