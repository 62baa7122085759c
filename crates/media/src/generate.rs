//! Films made up: a table of frames by bit rate, group of pictures and variability.

use std::fmt;

use ontempo_foundation::{Duration, RandomStream, Rate, math};

use crate::{Codec, Frame, FrameKind, FrameTable, MAX_FRAME_SIZE, MAX_FRAMES, MAX_PERIOD};

#[cfg(test)]
mod tests;

/// B pictures between two references at most: what x264 takes by default (`--bframes`).
const MAX_B_PICTURES: u32 = 3;

/// Pictures a second at most: the fastest of H.264 and HEVC is 300 (level 6.2).
const MAX_PICTURE_RATE: f64 = 300.0;

/// The largest coefficient of variation: ten times the mean is more than any encoder's sizes vary.
const MAX_VARIABILITY: f64 = 10.0;

/// Bytes of a picture in the mean, at least, so that the smallest still have the bytes of their
/// headers.
const MIN_MEAN_SIZE: f64 = 16.0;

/// That of P pictures in the film of [`SizeRatios::default`] is 0.55, in its zoom 0.34; B pictures vary more.
const DEFAULT_VARIABILITY: f64 = 0.5;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How large pictures of each kind are, relative to each other; each above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRatios {
    /// Pictures at which decoding can begin.
    pub key: f64,
    /// P pictures.
    pub reference: f64,
    /// B pictures on which other B pictures depend.
    pub b_reference: f64,
    /// B pictures on which none depends.
    pub disposable: f64,
}

impl Default for SizeRatios {
    /// Measured: 40 s of 1280x720 at 25 pictures a second, half a pan over a still, half a zoom, with noise
    /// (`mandelbrot`, `crop`, `noise=alls=6` of ffmpeg 5.1), by x264 `--preset medium --bitrate 4000
    /// --bframes 3 --b-adapt 0 --keyint 50 --no-scenecut`: 206,924 bytes of a key picture in the mean,
    /// 36,603 of a P picture, 15,837 of a B picture that is a reference, 12,727 of one that is not. The pan
    /// alone: 317, 37, 7.6 and 6.1 kB; the zoom alone: 74, 33, 25 and 20 kB.
    fn default() -> Self {
        Self { key: 16.3, reference: 2.88, b_reference: 1.24, disposable: 1.0 }
    }
}

/// The sound of a film: frames of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedSound {
    /// Bit rate.
    pub rate: Rate,
    /// Samples of a frame, at least 1: 1,024 of AAC-LC, 1,152 of MPEG layers II and III, 960 of Opus with
    /// 20 ms.
    pub samples: u32,
    /// Samples a second, at least 1.
    pub sample_rate: u32,
}

impl Default for GeneratedSound {
    /// AAC-LC at 128 kbit/s and 48 kHz.
    fn default() -> Self {
        Self { rate: Rate::from_bits_per_sec(128_000), samples: 1_024, sample_rate: 48_000 }
    }
}

/// What a film is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratorParameters {
    /// How the pictures are said to be coded.
    pub codec: Codec,
    /// Bit rate of the pictures, over the whole film.
    pub rate: Rate,
    /// Pictures a second, above 0 and at most 300.
    pub picture_rate: f64,
    /// From one key picture to the next, in pictures, at least 1.
    pub key_distance: u32,
    /// B pictures between references, 0 to 3.
    pub b_pictures: u32,
    /// Sizes of pictures by their kind.
    pub sizes: SizeRatios,
    /// Standard deviation of the sizes of one kind relative to their mean, 0 to 10.
    pub variability: f64,
    /// The pictures of each second have as many bytes as those of any other.
    pub is_constant: bool,
    /// The sound; `None`: silent.
    pub sound: Option<GeneratedSound>,
    /// How long it lasts; a picture that begins within it is part of it.
    pub duration: Duration,
    /// Seed of the sizes.
    pub seed: u64,
}

impl Default for GeneratorParameters {
    /// 20 s of 4 Mbit/s: 25 pictures a second, a key picture every 2 s, three B pictures between
    /// references, sound.
    fn default() -> Self {
        Self {
            codec: Codec::H264,
            rate: Rate::from_bits_per_sec(4_000_000),
            picture_rate: 25.0,
            key_distance: 50,
            b_pictures: 3,
            sizes: SizeRatios::default(),
            variability: DEFAULT_VARIABILITY,
            is_constant: false,
            sound: Some(GeneratedSound::default()),
            duration: Duration::from_secs(20),
            seed: 1,
        }
    }
}

/// Which parameter is out of its range; as text what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratorError {
    /// Pictures a second.
    PictureRate,
    /// Distance of key pictures.
    KeyDistance,
    /// B pictures.
    BPictures,
    /// A ratio of sizes.
    Sizes,
    /// Variability.
    Variability,
    /// Samples of sound.
    Sound,
    /// Zero, or longer than [`MAX_PERIOD`].
    Duration,
    /// More than [`MAX_FRAMES`].
    TooManyFrames,
    /// A rate so low that pictures or sound have less than their headers.
    TooSmall,
    /// A picture above [`MAX_FRAME_SIZE`].
    TooLarge,
}

impl fmt::Display for GeneratorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PictureRate => {
                write!(f, "the pictures a second are above 0 and at most {MAX_PICTURE_RATE}")
            }
            Self::KeyDistance => f.write_str("the distance of key pictures is at least 1 picture"),
            Self::BPictures => {
                write!(f, "the B pictures between references are 0 to {MAX_B_PICTURES}")
            }
            Self::Sizes => {
                f.write_str("the ratios of sizes are numbers above 0, at most 1,000,000")
            }
            Self::Variability => write!(f, "the variability of sizes is 0 to {MAX_VARIABILITY}"),
            Self::Sound => f.write_str("a frame of sound has samples, and at least one a second"),
            Self::Duration => {
                let most = MAX_PERIOD.as_secs_f64();
                write!(f, "a film lasts longer than 0 s, and at most {most} s")
            }
            Self::TooManyFrames => write!(f, "a film has at most {MAX_FRAMES} frames"),
            Self::TooSmall => write!(
                f,
                "a picture has at least {MIN_MEAN_SIZE} bytes in the mean, and a frame of sound 1: a \
                 higher rate, or fewer of them a second"
            ),
            Self::TooLarge => write!(
                f,
                "a frame has at most {MAX_FRAME_SIZE} bytes: a lower rate, more of them a second, or \
                 less variability"
            ),
        }
    }
}

impl std::error::Error for GeneratorError {}

/// A picture in decoding order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Picture {
    coded: Coded,
    /// Numbers of other pictures, in decoding order.
    depends_on: [Option<u32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coded {
    Key,
    P,
    BReference,
    B,
}

/// Makes up a film.
///
/// Groups of pictures are those of x264 with `--bframes N --b-adapt 0 --b-pyramid normal` and closed
/// groups (`lookahead.c`): a P picture depends on the P or key picture before it, in display order; of
/// two or three B pictures between them one is a reference (the first of two, the middle of three) and
/// depends on both; the others depend on their neighbours among these, and no picture on them. The last
/// picture before a key picture is a P picture.
///
/// Frames are in decoding order, a constant time apart, as encoders give them out: a B picture comes
/// after the P picture that is shown after it. The first frame is at 0, which is as many pictures after
/// the first was taken as there are B pictures in a row.
///
/// Sizes are log-normally distributed (`variability`) around a mean for each kind (`sizes`); then all
/// are scaled so that the film has the rate, or each second (`is_constant`).
///
/// # Errors
/// A parameter is out of its range.
pub fn generate(parameters: &GeneratorParameters) -> Result<FrameTable, GeneratorError> {
    let count = picture_count(parameters)?;
    let pictures = pictures(count, parameters.key_distance, parameters.b_pictures);
    let at = |place: u64| {
        Duration::from_nanos((place as f64 * 1e9 / parameters.picture_rate).round() as u64)
    };
    let sizes = sizes(parameters, &pictures, at)?;
    let mut frames = Vec::with_capacity(pictures.len());
    let mut sound = sound(parameters)?.into_iter().peekable();
    // The number of each picture among all frames.
    let mut numbers: Vec<u32> = Vec::with_capacity(pictures.len());
    for (place, (picture, size)) in pictures.iter().zip(sizes).enumerate() {
        let made = at(place as u64);
        while let Some(frame) = sound.next_if(|frame| frame.made < made) {
            frames.push(frame);
        }
        let on = picture.depends_on.iter().flatten();
        let mut depends_on: Vec<u32> =
            on.filter_map(|&other| numbers.get(other as usize).copied()).collect();
        depends_on.sort_unstable();
        numbers.push(u32::try_from(frames.len()).map_err(|_| GeneratorError::TooManyFrames)?);
        frames.push(Frame { made, kind: picture.coded.kind(), size, depends_on });
    }
    frames.extend(sound);
    let last = frames.last().map_or(Duration::ZERO, |frame| frame.made);
    let period = at(count).max(parameters.duration).max(last + Duration::from_nanos(1));
    Ok(FrameTable { codec: parameters.codec, frames, period })
}

/// How many pictures there are, once all parameters are in their range.
fn picture_count(parameters: &GeneratorParameters) -> Result<u64, GeneratorError> {
    let GeneratorParameters { picture_rate, sizes, variability, sound, duration, .. } = *parameters;
    let is_rate = picture_rate > 0.0 && picture_rate <= MAX_PICTURE_RATE;
    let SizeRatios { key, reference, b_reference, disposable } = sizes;
    let is_ratio = |ratio: f64| ratio > 0.0 && ratio <= 1e6;
    let sound_is_valid = |sound: GeneratedSound| sound.samples > 0 && sound.sample_rate > 0;
    let checks = [
        (is_rate, GeneratorError::PictureRate),
        (parameters.key_distance > 0, GeneratorError::KeyDistance),
        (parameters.b_pictures <= MAX_B_PICTURES, GeneratorError::BPictures),
        (
            [key, reference, b_reference, disposable].into_iter().all(is_ratio),
            GeneratorError::Sizes,
        ),
        ((0.0..=MAX_VARIABILITY).contains(&variability), GeneratorError::Variability),
        (sound.is_none_or(sound_is_valid), GeneratorError::Sound),
        (duration > Duration::ZERO && duration <= MAX_PERIOD, GeneratorError::Duration),
    ];
    if let Some((_, error)) = checks.into_iter().find(|(is_valid, _)| !is_valid) {
        return Err(error);
    }
    let pictures = whole(duration.as_secs_f64() * picture_rate);
    let frames = sound.map_or(0.0, |sound| {
        duration.as_secs_f64() * f64::from(sound.sample_rate) / f64::from(sound.samples)
    });
    if pictures + frames > MAX_FRAMES as f64 {
        return Err(GeneratorError::TooManyFrames);
    }
    Ok(pictures as u64)
}

/// The next whole number, but not for an error of the last digits.
fn whole(number: f64) -> f64 {
    let rounded = number.round();
    if (number - rounded).abs() < 1e-6 { rounded.max(1.0) } else { number.ceil() }
}

impl Coded {
    const fn kind(self) -> FrameKind {
        match self {
            Self::Key => FrameKind::Key,
            Self::P | Self::BReference => FrameKind::Reference,
            Self::B => FrameKind::Disposable,
        }
    }
}

/// The pictures of a film in decoding order.
fn pictures(count: u64, key_distance: u32, b_pictures: u32) -> Vec<Picture> {
    let mut all: Vec<Picture> = Vec::new();
    let mut begun = 0;
    while begun < count {
        let mut left = (count - begun).min(u64::from(key_distance));
        begun += left;
        let mut last = push(&mut all, Coded::Key, [None, None]);
        left -= 1;
        while left > 0 {
            // The P picture that is shown after the B pictures.
            let between = u64::from(b_pictures).min(left - 1);
            left -= between + 1;
            let next = push(&mut all, Coded::P, [Some(last), None]);
            match between {
                0 => {}
                1 => {
                    push(&mut all, Coded::B, [Some(last), Some(next)]);
                }
                _ => {
                    let middle = push(&mut all, Coded::BReference, [Some(last), Some(next)]);
                    // Of two, the first is the reference; of three, the middle one.
                    if between > 2 {
                        push(&mut all, Coded::B, [Some(last), Some(middle)]);
                    }
                    push(&mut all, Coded::B, [Some(middle), Some(next)]);
                }
            }
            last = next;
        }
    }
    all
}

fn push(all: &mut Vec<Picture>, coded: Coded, depends_on: [Option<u32>; 2]) -> u32 {
    all.push(Picture { coded, depends_on });
    // At most MAX_FRAMES.
    (all.len() - 1) as u32
}

/// A number of bytes for each picture; each is at least 1.
fn sizes(
    parameters: &GeneratorParameters,
    pictures: &[Picture],
    at: impl Fn(u64) -> Duration,
) -> Result<Vec<u32>, GeneratorError> {
    let bytes_per_second = parameters.rate.as_bits_per_sec() as f64 / 8.0;
    if bytes_per_second / parameters.picture_rate < MIN_MEAN_SIZE {
        return Err(GeneratorError::TooSmall);
    }
    // Of the mean 1.
    let variance = math::ln(1.0 + parameters.variability * parameters.variability);
    let mut random = RandomStream::new(parameters.seed, "sizes of a generated film");
    let ratios = parameters.sizes;
    let weights = pictures.iter().map(|picture| {
        let mean = match picture.coded {
            Coded::Key => ratios.key,
            Coded::P => ratios.reference,
            Coded::BReference => ratios.b_reference,
            Coded::B => ratios.disposable,
        };
        mean * random.log_normal(-variance / 2.0, math::sqrt(variance))
    });
    let weights: Vec<f64> = weights.collect();
    let mut sizes = Vec::with_capacity(weights.len());
    let mut begin = 0;
    while begin < weights.len() {
        let second = |place: usize| at(place as u64).as_nanos() / NANOS_PER_SECOND;
        let end = match parameters.is_constant {
            true => (begin..weights.len()).find(|&place| second(place) > second(begin)),
            false => None,
        };
        let end = end.unwrap_or(weights.len());
        let span = match parameters.is_constant && end < weights.len() {
            // Seconds without a picture count, too.
            true => (second(end) - second(begin)) as f64,
            false => (end - begin) as f64 / parameters.picture_rate,
        };
        share(&weights[begin..end], span * bytes_per_second, &mut sizes)?;
        begin = end;
    }
    Ok(sizes)
}

/// Shares bytes out by weight; the sum is exact to a byte, unless pictures would have none.
fn share(weights: &[f64], bytes: f64, sizes: &mut Vec<u32>) -> Result<(), GeneratorError> {
    let sum: f64 = weights.iter().sum();
    let (mut due, mut shared) = (0.0, 0.0);
    for weight in weights {
        due += weight / sum * bytes;
        let size = (due - shared).round().max(1.0);
        if size > f64::from(MAX_FRAME_SIZE) {
            return Err(GeneratorError::TooLarge);
        }
        shared += size;
        sizes.push(size as u32);
    }
    Ok(())
}

/// The frames of sound: a constant time apart, and equally large but for rounding.
fn sound(parameters: &GeneratorParameters) -> Result<Vec<Frame>, GeneratorError> {
    let Some(GeneratedSound { rate, samples, sample_rate }) = parameters.sound else {
        return Ok(Vec::new());
    };
    let (samples, sample_rate) = (u128::from(samples), u128::from(sample_rate));
    let bytes =
        |place: u128| place * samples * u128::from(rate.as_bits_per_sec()) / (8 * sample_rate);
    let mut frames = Vec::new();
    for place in 0.. {
        let nanos = place * samples * u128::from(NANOS_PER_SECOND) / sample_rate;
        let made = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        if made >= parameters.duration {
            break;
        }
        let size = bytes(place + 1) - bytes(place);
        if size == 0 {
            return Err(GeneratorError::TooSmall);
        }
        let size = u32::try_from(size).ok().filter(|&size| size <= MAX_FRAME_SIZE);
        let size = size.ok_or(GeneratorError::TooLarge)?;
        frames.push(Frame { made, kind: FrameKind::Sound, size, depends_on: Vec::new() });
    }
    Ok(frames)
}
