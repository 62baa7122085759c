//! The tables `frames` and `media`: films, and what viewers see of them.

use arrow_array::Array;
use ontempo_foundation::printable;
use ontempo_scenario::tables::{FLOWS, FRAMES, MEDIA};

use super::Reading;
use crate::columns::optional;
use crate::error::PageError;
use crate::film::{self, Film, Frame, Kind, Player};
use crate::reduce::quantile;

/// Players of a film that are shown.
const MAX_PLAYERS: usize = 16;

/// Transports whose packets sent again the table `flows` counts.
const COUNTED: [&str; 2] = ["tcp", "adu"];

/// Reads and draws the films of a run.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), PageError> {
    let mut films = players(reading)?;
    let mut frames = frames(reading)?;
    packets(reading, &mut films)?;
    let drawn = reading.drawn_groups();
    for (place, film) in films.into_iter().enumerate() {
        let Some(mut film) = film else { continue };
        let flows = &mut frames[place];
        flows.iter_mut().for_each(|flow| flow.sort_by(|a, b| a.sent_s.total_cmp(&b.sent_s)));
        totals(&mut film, flows);
        if place < drawn {
            if flows.len() > 1 {
                let sentence = format!(
                    "{}: of {} flows the frames of the first are drawn one by one, and its freezes",
                    film.group, film.flows
                );
                reading.run.notes.push(sentence);
            }
            film::draw(&mut reading.run, &film, flows);
        }
        reading.run.films.push(film);
    }
    Ok(())
}

/// What the table `media` says of each group: sums over its flows for each player.
fn players(reading: &mut Reading<'_>) -> Result<Vec<Option<Film>>, PageError> {
    let table = reading.table(&MEDIA)?;
    let (flow, latency) = (table.count("flow")?, table.number("player_latency_s")?);
    let (pictures, shown) = (table.count("pictures")?, table.count("decodable_pictures")?);
    let (sound, heard) = (table.count("sound_frames")?, table.count("decodable_sound")?);
    let (freezes, longest) = (table.count("freezes")?, table.number("longest_freeze_s")?);
    let frozen = table.number("frozen_s")?;
    let bytes = ["media_bytes", "wire_bytes", "back_bytes"].map(|name| table.count(name));
    let [media, wire, back] = bytes;
    let (media, wire, back) = (media?, wire?, back?);
    let mut films: Vec<Option<Film>> = vec![None; reading.groups.len()];
    let mut counted = vec![false; reading.flows.len()];
    let mut left_out = false;
    for row in 0..table.len() {
        let number = usize::try_from(flow.value(row)).ok();
        let Some((number, of)) = number.and_then(|n| Some((n, reading.flows.get(n)?))) else {
            continue;
        };
        let film = films[of.group].get_or_insert_with(|| Film {
            group: printable(&reading.groups[of.group]).into_owned(),
            ..Film::default()
        });
        // The bytes of a flow stand in each of its rows.
        if !std::mem::replace(&mut counted[number], true) {
            film.flows += 1;
            film.media_bytes = film.media_bytes.saturating_add(media.value(row));
            film.wire_bytes = film.wire_bytes.saturating_add(wire.value(row));
            film.back_bytes = film.back_bytes.saturating_add(back.value(row));
        }
        let Some(player) = player_of(film, latency.value(row)) else {
            left_out = true;
            continue;
        };
        let sums = [
            (&mut player.pictures, pictures),
            (&mut player.decodable_pictures, shown),
            (&mut player.sound_frames, sound),
            (&mut player.decodable_sound, heard),
            (&mut player.freezes, freezes),
        ];
        for (sum, column) in sums {
            *sum = sum.saturating_add(column.value(row));
        }
        player.longest_freeze_s = player.longest_freeze_s.max(longest.value(row));
        player.frozen_s += frozen.value(row);
    }
    for film in films.iter_mut().flatten() {
        film.players.sort_by(|a, b| a.latency_s.total_cmp(&b.latency_s));
    }
    if left_out {
        let sentence = format!("a film is shown for at most {MAX_PLAYERS} latencies of a player");
        reading.run.notes.push(sentence);
    }
    Ok(films)
}

/// The player of this latency; `None` if there are too many, or it is none.
fn player_of(film: &mut Film, latency_s: f64) -> Option<&mut Player> {
    let known = film.players.iter().position(|player| player.latency_s == latency_s);
    let place = known.unwrap_or(film.players.len());
    if known.is_none() {
        let is_time = latency_s.is_finite() && latency_s > 0.0;
        if place == MAX_PLAYERS || !is_time {
            return None;
        }
        film.players.push(Player { latency_s, ..Player::default() });
    }
    film.players.get_mut(place)
}

/// The frames of each flow, by group. One column of the table is in memory at a time besides them.
fn frames(reading: &mut Reading<'_>) -> Result<Vec<Vec<Vec<Frame>>>, PageError> {
    let mut groups: Vec<Vec<Vec<Frame>>> = vec![Vec::new(); reading.groups.len()];
    let of_flows = reading.column(&FRAMES, "flow")?;
    reading.note_part(FRAMES.name, of_flows.len());
    let flow = of_flows.count("flow")?;
    let of_kinds = reading.column(&FRAMES, "type")?;
    let kind = of_kinds.text("type")?;
    let of_times = ["sent_s", "latency_s", "decodable_s"].map(|name| reading.column(&FRAMES, name));
    let [of_sent, of_latency, of_decodable] = of_times;
    let (of_sent, of_latency, of_decodable) = (of_sent?, of_latency?, of_decodable?);
    let (sent, latency) = (of_sent.number("sent_s")?, of_latency.number("latency_s")?);
    let decodable = of_decodable.number("decodable_s")?;
    // Place of each flow among those of its group.
    let mut places = vec![0; reading.flows.len()];
    let mut sizes = vec![0; reading.groups.len()];
    for (place, of) in places.iter_mut().zip(&reading.flows) {
        *place = sizes[of.group];
        sizes[of.group] += 1;
    }
    for row in 0..of_flows.len() {
        let number = usize::try_from(flow.value(row)).ok();
        let Some((number, of)) = number.and_then(|n| Some((n, reading.flows.get(n)?))) else {
            continue;
        };
        let sent_s = sent.value(row);
        let Some(kind) = kind.get(row).and_then(Kind::named) else { continue };
        if !sent_s.is_finite() || sent.is_null(row) {
            continue;
        }
        let group = &mut groups[of.group];
        if group.len() <= places[number] {
            group.resize(places[number] + 1, Vec::new());
        }
        let finite = |column| optional(column, row).filter(|value| value.is_finite());
        group[places[number]].push(Frame {
            kind,
            sent_s,
            latency_s: finite(latency),
            decodable_s: finite(decodable),
        });
    }
    Ok(groups)
}

/// What the table `flows` says of the packets of films.
fn packets(reading: &Reading<'_>, films: &mut [Option<Film>]) -> Result<(), PageError> {
    let of = |name| reading.column(&FLOWS, name);
    let (of_sent, of_dropped) = (of("sent_packets")?, of("dropped_packets")?);
    let (of_again, of_transport) = (of("retransmitted")?, of("transport")?);
    let (sent, dropped) = (of_sent.count("sent_packets")?, of_dropped.count("dropped_packets")?);
    let again = of_again.count("retransmitted")?;
    let transport = of_transport.text("transport")?;
    let of_congestion = of("congestion")?;
    let congestion = of_congestion.text("congestion")?;
    for (row, flow) in reading.flows.iter().enumerate() {
        let Some(film) = &mut films[flow.group] else { continue };
        let name = transport.get(row).unwrap_or_default();
        let words: Vec<&str> = [Some(name), congestion.get(row)].into_iter().flatten().collect();
        film.transport = printable(&words.join(" ")).into_owned();
        film.sent_packets = film.sent_packets.saturating_add(sent.value(row));
        film.dropped_packets = film.dropped_packets.saturating_add(dropped.value(row));
        if COUNTED.contains(&name) {
            let sum = film.sent_again.unwrap_or_default();
            film.sent_again = Some(sum.saturating_add(again.value(row)));
        }
    }
    Ok(())
}

/// Frames by kind and quantiles of latencies, over all flows.
fn totals(film: &mut Film, flows: &[Vec<Frame>]) {
    let mut latencies = Vec::new();
    for frame in flows.iter().flatten() {
        let kind = &mut film.kinds[frame.kind as usize];
        kind.sent += 1;
        kind.not_whole += u64::from(frame.latency_s.is_none());
        kind.undecodable += u64::from(frame.latency_s.is_some() && frame.decodable_s.is_none());
        latencies.extend(frame.latency_s);
    }
    latencies.sort_by(f64::total_cmp);
    film.p50_s = quantile(&latencies, 0.5);
    film.p95_s = quantile(&latencies, 0.95);
    film.p99_s = quantile(&latencies, 0.99);
}
