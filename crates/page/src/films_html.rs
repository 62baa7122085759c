//! The tables of films on the page: what viewers see, and what was lost and sent again.

use std::fmt::Write;

use crate::film::{Film, KindCount, Player};
use crate::html::escaped;
use crate::numbers::{count, percent, seconds};
use crate::page::Page;

/// A smaller share of pictures or sound on time is marked.
const MARKED_ON_TIME: f64 = 0.99;

const NONE: &str = "<span class=\"none\">–</span>";

impl Page {
    /// Films of all runs; empty if there are none.
    pub(crate) fn films(&self) -> String {
        if self.runs.iter().all(|run| run.films.is_empty()) {
            return String::new();
        }
        let (mut players, mut losses) = (String::new(), String::new());
        for (run, of_run) in self.runs.iter().enumerate() {
            for film in &of_run.films {
                let name = self.film_name(run, film);
                for (place, player) in film.players.iter().enumerate() {
                    let next = if place > 0 { " class=\"next\"" } else { "" };
                    let cells = player_cells(film, player, place == 0);
                    let head = if place == 0 { name.as_str() } else { "" };
                    let _ = writeln!(
                        players,
                        "<tr data-run=\"{run}\"{next}><th scope=\"row\">{head}</th>{cells}</tr>"
                    );
                }
                let _ = writeln!(
                    losses,
                    "<tr data-run=\"{run}\"><th scope=\"row\">{name}</th>{}</tr>",
                    loss_cells(film)
                );
            }
        }
        format!(
            "<section class=\"films\">\n<h2>Films</h2>\n<p>What a player shows that waits for its latency; a frame \
             is on time if it can be decoded by then.</p>\n<div class=\"scroll\"><table>\n<thead><tr>\
             <th scope=\"col\">Film</th><th scope=\"col\">Player</th><th scope=\"col\">Pictures on time</th>\
             <th scope=\"col\">Sound</th><th scope=\"col\">Freezes</th><th scope=\"col\">Longest</th>\
             <th scope=\"col\">In all</th><th scope=\"col\">Latency<small>p50</small></th>\
             <th scope=\"col\"><small>p95</small></th><th scope=\"col\"><small>p99</small></th>\
             <th scope=\"col\">Bytes sent<small>per byte of the film</small></th></tr></thead>\n<tbody>\n\
             {players}</tbody>\n</table></div>\n</section>\n\
             <section class=\"films\">\n<h2>Lost and sent again</h2>\n<p>Frames that were not whole by the end of the \
             run; below, those that were whole but need one that was not. Packets are counted for each flow: \
             which frames were repaired, and what a sender or receiver gave up, the tables do not tell.</p>\n\
             <div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">Film</th>\
             <th scope=\"col\">Key pictures</th><th scope=\"col\">Reference</th><th scope=\"col\">Disposable</th>\
             <th scope=\"col\">Sound</th><th scope=\"col\">Packets sent</th><th scope=\"col\">Lost in the network</th>\
             <th scope=\"col\">Sent again</th></tr></thead>\n<tbody>\n{losses}</tbody>\n</table></div>\n</section>\n"
        )
    }

    fn film_name(&self, run: usize, film: &Film) -> String {
        let flows = if film.flows > 1 { format!("{} flows, ", film.flows) } else { String::new() };
        let detail = format!("{flows}{}", film.transport);
        let (name, detail) = match self.runs.len() {
            1 => (film.group.clone(), detail),
            _ => (self.names[run].clone(), format!("{}, {detail}", film.group)),
        };
        let swatch = self.swatch_of_run(run);
        format!("{swatch}{}<small>{}</small>", escaped(&name), escaped(&detail))
    }
}

fn cell(label: &str, value: &str) -> String {
    format!("<td data-label=\"{label}\">{value}</td>")
}

/// A share of `all`, marked if it is low.
fn on_time(some: u64, all: u64) -> String {
    if all == 0 {
        return NONE.to_owned();
    }
    let share = some as f64 / all as f64;
    let class = if share < MARKED_ON_TIME { " class=\"bad\"" } else { "" };
    format!("<b{class}>{}</b><small>{} of {}</small>", percent(share), count(some), count(all))
}

/// `is_first`: the row has what does not depend on the player.
fn player_cells(film: &Film, player: &Player, is_first: bool) -> String {
    let time = |time: Option<f64>| match time {
        Some(time) if is_first => seconds(time),
        None if is_first => NONE.to_owned(),
        _ => String::new(),
    };
    let frozen = |time: f64| if player.freezes == 0 { NONE.to_owned() } else { seconds(time) };
    let bytes = match film.media_bytes {
        _ if !is_first => String::new(),
        0 => NONE.to_owned(),
        media => {
            let ratio = |bytes: u64| bytes as f64 / media as f64;
            let (sent, back) = (ratio(film.wire_bytes), ratio(film.back_bytes));
            format!("{sent:.3}<small>{back:.3} back</small>")
        }
    };
    [
        cell("Player", &seconds(player.latency_s)),
        cell("Pictures on time", &on_time(player.decodable_pictures, player.pictures)),
        cell("Sound", &on_time(player.decodable_sound, player.sound_frames)),
        cell("Freezes", &count(player.freezes)),
        cell("Longest", &frozen(player.longest_freeze_s)),
        cell("In all", &frozen(player.frozen_s)),
        cell("Latency p50", &time(film.p50_s)),
        cell("p95", &time(film.p95_s)),
        cell("p99", &time(film.p99_s)),
        cell("Bytes sent", &bytes),
    ]
    .concat()
}

fn loss_cells(film: &Film) -> String {
    let kind = |kind: &KindCount| match kind.sent {
        0 => NONE.to_owned(),
        sent => {
            let undecodable = match kind.undecodable {
                0 => String::new(),
                some => format!("<small>{} undecodable</small>", count(some)),
            };
            let lost = count(kind.not_whole);
            format!("{lost} <span class=\"none\">of {}</span>{undecodable}", count(sent))
        }
    };
    let share = film.dropped_packets as f64 / film.sent_packets.max(1) as f64;
    let lost = format!("{}<small>{}</small>", count(film.dropped_packets), percent(share));
    let again = film.sent_again.map_or_else(|| "<small>not told</small>".to_owned(), count);
    let [key, reference, disposable, sound] = &film.kinds;
    [
        cell("Key pictures", &kind(key)),
        cell("Reference", &kind(reference)),
        cell("Disposable", &kind(disposable)),
        cell("Sound", &kind(sound)),
        cell("Packets sent", &count(film.sent_packets)),
        cell("Lost in the network", &lost),
        cell("Sent again", &again),
    ]
    .concat()
}
