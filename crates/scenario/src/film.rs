//! The film of a scenario.

use ontempo_foundation::Rate;
use ontempo_media::{
    Codec, Film, FrameTable, FrameTableError, GeneratedSound, GeneratorError, GeneratorParameters,
    Sending,
};

use crate::model::{Application, GeneratedFilm, MediaCodec, MediaSending};

/// What a paced film has beyond the mean of its frames where no rate is given, in percent.
const PACED_PERCENT: u64 = 110;

/// The most bytes that the transport streams of all films of a scenario take together.
pub(crate) const MAX_STREAM_BYTES: u64 = 512 << 20;

/// The most frames of a film that is made up.
pub(crate) const MAX_GENERATED: f64 = 1e6;

/// Bytes of a transport packet, and of a frame in one at most, in bytes.
const PACKET: u64 = 188;
const PAYLOAD: u64 = 176;

/// What the transport stream of a film takes, in bytes, at most.
pub(crate) fn stream_bytes(table: &FrameTable, sending: &Sending) -> u64 {
    let packets = |size: u32| (u64::from(size) + PACKET).div_ceil(PAYLOAD);
    let frames = table.frames.iter().map(|frame| packets(frame.size) * PACKET).sum::<u64>();
    // Two packets of tables ten times a second.
    let tables = (table.period.as_secs_f64() * 20.0).ceil() as u64 * PACKET;
    let stuffing = match sending {
        Sending::Paced { rate, stuffing: true } => {
            (rate.as_bits_per_sec() as f64 / 8.0 * table.period.as_secs_f64()).ceil() as u64
        }
        _ => 0,
    };
    frames.saturating_add(tables).saturating_add(stuffing)
}

/// About how many frames a film that is made up has.
pub(crate) fn generated_frames(film: &GeneratedFilm) -> f64 {
    let sound = GeneratedSound::default();
    let sound = f64::from(sound.sample_rate) / f64::from(sound.samples);
    film.duration.as_secs_f64() * (film.picture_rate.max(0.0) + sound)
}

/// Reads a table of frames.
pub(crate) fn table(text: &str) -> Result<FrameTable, FrameTableError> {
    FrameTable::read_csv(text)
}

/// Makes a film up.
pub(crate) fn generated(film: &GeneratedFilm) -> Result<FrameTable, GeneratorError> {
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

/// The mean rate of a film's transport packets, tables among them and stuffing not.
pub(crate) fn mean_rate(table: &FrameTable) -> Rate {
    Film::new(table.clone(), &Sending::Bursts).mean_rate()
}

/// The film of an application; `None` for others, or where its table cannot be read.
pub fn of(application: &Application) -> Option<Film> {
    let Application::Media { frames_text, generate, sending, mux_rate, stuffing, .. } = application
    else {
        return None;
    };
    let table = match (frames_text, generate) {
        (Some(text), _) => table(text).ok()?,
        (None, Some(film)) => generated(film).ok()?,
        (None, None) => return None,
    };
    let sending = sent(&table, *sending, *mux_rate, *stuffing);
    Some(Film::new(table, &sending))
}

/// How a film is sent.
pub(crate) fn sent(
    table: &FrameTable,
    sending: MediaSending,
    mux_rate: Option<Rate>,
    stuffing: bool,
) -> Sending {
    match sending {
        MediaSending::Bursts => Sending::Bursts,
        MediaSending::Paced => {
            let mean = || mean_rate(table).as_bits_per_sec().saturating_mul(PACED_PERCENT) / 100;
            let rate = mux_rate.unwrap_or_else(|| Rate::from_bits_per_sec(mean()));
            Sending::Paced { rate, stuffing }
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::{Bytes, Duration};

    use super::*;

    #[test]
    fn the_bound_on_a_stream_is_above_what_it_takes() {
        let table = generated(&GeneratedFilm::default()).expect("the defaults are possible");
        for sending in [MediaSending::Bursts, MediaSending::Paced] {
            let sending = sent(&table, sending, None, sending == MediaSending::Paced);
            let film = Film::new(table.clone(), &sending);
            let bits = film.mean_rate().as_bits_per_sec() as f64 * film.period().as_secs_f64();
            let share = stream_bytes(&table, &sending) as f64 / (bits / 8.0);
            assert!((1.0..2.5).contains(&share), "{share}");
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
