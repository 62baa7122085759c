//! The film of a scenario.

use ontempo_foundation::Rate;
use ontempo_media::{
    Codec, Film, FrameTable, GeneratedSound, GeneratorError, GeneratorParameters, Sending,
};

use crate::model::{Application, GeneratedFilm, MediaCodec, MediaSending};

/// What a paced film has beyond the mean of its frames where no rate is given, in percent.
const PACED_PERCENT: u64 = 110;

/// The most bytes that the transport streams of all films of a scenario take together.
pub(crate) const MAX_STREAM_BYTES: u64 = 512 << 20;

/// The most frames of a film that is made up.
pub(crate) const MAX_GENERATED: f64 = 1e6;

/// Bytes of a transport packet.
const PACKET: u64 = 188;

/// A film before its transport stream is made.
pub(crate) struct Plan {
    table: FrameTable,
    /// The rate of its transport packets, tables among them and stuffing not.
    pub(crate) needed: Rate,
    sending: Sending,
}

/// The plan of an application; `None` for others, and where files are not read yet.
///
/// # Errors
/// The field that is wrong, and why.
pub(crate) fn plan(application: &Application) -> Option<Result<Plan, (&'static str, String)>> {
    let Application::Media { frames_text, generate, sending, mux_rate, stuffing, .. } = application
    else {
        return None;
    };
    let table = match (frames_text, generate) {
        (Some(text), _) => {
            FrameTable::read_csv(text).map_err(|error| ("frames-text", error.to_string()))
        }
        (_, Some(film)) => generated(film).map_err(|error| ("generate", error.to_string())),
        (None, None) => return None,
    };
    Some(table.map(|table| Plan::new(table, *sending, *mux_rate, *stuffing)))
}

impl Plan {
    fn new(
        table: FrameTable,
        sending: MediaSending,
        mux_rate: Option<Rate>,
        stuffing: bool,
    ) -> Self {
        let bits = (table.transport_packets() * PACKET * 8) as f64;
        let needed = Rate::from_bits_per_sec((bits / table.period.as_secs_f64()).ceil() as u64);
        let default = needed.as_bits_per_sec().saturating_mul(PACED_PERCENT) / 100;
        let sending = match sending {
            MediaSending::Bursts => Sending::Bursts,
            MediaSending::Paced => {
                let rate = mux_rate.unwrap_or_else(|| Rate::from_bits_per_sec(default));
                Sending::Paced { rate, stuffing }
            }
        };
        Self { table, needed, sending }
    }

    /// Bytes that a round of its transport stream takes, at most.
    pub(crate) fn stream_bytes(&self) -> u64 {
        let stuffing = match self.sending {
            Sending::Paced { rate, stuffing: true } => {
                let bits = rate.as_bits_per_sec() as f64 * self.table.period.as_secs_f64();
                (bits / 8.0).ceil() as u64
            }
            _ => 0,
        };
        (self.table.transport_packets() * PACKET).saturating_add(stuffing)
    }

    /// The rate at which it is given to the transport, in the mean, stuffing counted.
    pub(crate) fn offered(&self) -> Rate {
        match self.sending {
            Sending::Paced { rate, stuffing: true } => rate.max(self.needed),
            _ => self.needed,
        }
    }
}

/// About how many frames a film that is made up has.
pub(crate) fn generated_frames(film: &GeneratedFilm) -> f64 {
    let sound = GeneratedSound::default();
    let sound = f64::from(sound.sample_rate) / f64::from(sound.samples);
    film.duration.as_secs_f64() * (film.picture_rate.max(0.0) + sound)
}

/// Makes a film up.
fn generated(film: &GeneratedFilm) -> Result<FrameTable, GeneratorError> {
    let sound = GeneratedSound { rate: film.sound, ..GeneratedSound::default() };
    ontempo_media::generate(&GeneratorParameters {
        codec: match film.codec {
            MediaCodec::H264 => Codec::H264,
            MediaCodec::Hevc => Codec::Hevc,
            MediaCodec::Unknown => Codec::Unknown,
        },
        rate: film.rate,
        picture_rate: film.picture_rate,
        key_distance: film.key_distance,
        b_pictures: film.b_pictures,
        variability: film.variability,
        is_constant: film.constant,
        sound: (film.sound.as_bits_per_sec() > 0).then_some(sound),
        duration: film.duration,
        seed: film.seed,
        ..GeneratorParameters::default()
    })
}

/// The film of an application; `None` for others, or where its table cannot be read.
pub fn of(application: &Application) -> Option<Film> {
    let plan = plan(application)?.ok()?;
    Some(Film::new(plan.table, &plan.sending))
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::{Bytes, Duration};

    use super::*;

    #[test]
    fn a_plan_knows_what_the_stream_takes() {
        let table = generated(&GeneratedFilm::default()).expect("the defaults are possible");
        for (sending, stuffing) in [
            (MediaSending::Bursts, false),
            (MediaSending::Paced, false),
            (MediaSending::Paced, true),
        ] {
            let plan = Plan::new(table.clone(), sending, None, stuffing);
            let (bytes, offered) = (plan.stream_bytes(), plan.offered().as_bits_per_sec() as f64);
            let film = Film::new(plan.table, &plan.sending);
            let mean = film.mean_rate().as_bits_per_sec() as f64;
            assert!((offered / mean - 1.0).abs() < 0.01, "{offered} {mean}");
            let taken = (mean * film.period().as_secs_f64() / 8.0).ceil() as u64;
            if stuffing {
                assert!((taken..3 * taken).contains(&bytes), "{bytes} {taken}");
            } else {
                assert!(bytes.abs_diff(taken) <= 188, "{bytes} {taken}");
            }
        }
    }

    #[test]
    fn a_paced_film_takes_a_tenth_more_than_its_frames() {
        let text =
            "# period_s 1\ntime_s,type,size_bytes,depends_on\n0,key,50000,\n0.5,reference,1000,0\n";
        let film = |sending| {
            of(&Application::Media {
                file: None,
                generate: None,
                frames: None,
                frames_text: Some(text.to_owned()),
                sending,
                mux_rate: None,
                stuffing: sending == MediaSending::Paced,
                latency: vec![],
            })
            .expect("it is a film")
        };
        let [bursts, paced] = [MediaSending::Bursts, MediaSending::Paced].map(film);
        let share = paced.mean_rate().as_bits_per_sec() as f64
            / bursts.mean_rate().as_bits_per_sec() as f64;
        assert!((share - 1.1).abs() < 0.01, "{share}");
        let first = paced.datagram(0).expect("it has datagrams");
        assert!(first.at > Duration::ZERO && first.size() == 1316);
        assert!(bursts.mean_rate().time_to_send(Bytes::new(51_000)) < Duration::from_secs(1));
    }
}
