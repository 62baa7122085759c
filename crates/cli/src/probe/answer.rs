//! `ontempo probe HOST:PORT`: what the path bears, in one line.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::PoisonError;

use indicatif::ProgressBar;
use ontempo_foundation::{Bytes, Rate};
use ontempo_probe::{Answer, Limit, Measure, PathOptions, PathProgress, SenderOptions, Token};
use ontempo_udp::random;
use serde_json::{Value, json};

use super::{reach, refused, run_to_end};
use crate::access::presented_text;
use crate::arguments::Probe as Arguments;
use crate::failure::Failure;
use crate::output::{emit, emit_json};
use crate::signals::stop_flag;

/// More than this program sends packet by packet.
const MAX_RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);

pub(super) fn answer(arguments: &Arguments, receiver: &str) -> Result<(), Failure> {
    if arguments.seconds.is_some() {
        let what = "--seconds: only with --spacing or --trace; the answer takes less than 10 s";
        return Err(Failure::Input(what.to_owned()));
    }
    let token = presented_text(&arguments.credentials)?.as_deref().map(Token::new);
    let stopped = stop_flag()?;
    let (destination, socket) = reach(arguments, receiver)?;
    let options = PathOptions {
        packet: Bytes::new(arguments.packet),
        max_rate: MAX_RATE,
        sender: SenderOptions { token, dscp: arguments.dscp, ..SenderOptions::to(destination) },
        secret: random(),
    };
    let is_terminal = !arguments.json && std::io::stderr().is_terminal();
    let bar = is_terminal.then(ProgressBar::new_spinner);
    let shown = bar.clone();
    let measure = Measure::new(options, random(), move |progress| {
        if let Some(bar) = &shown {
            bar.set_message(progress_line(&progress));
            bar.tick();
        }
    });
    let state = measure.state();
    let (is_interrupted, ended) = run_to_end(socket, measure, &stopped)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = state.answer();
    // Without one it ends with an error, which is the document then.
    if let Some(answer) = &answer {
        if arguments.json {
            emit_json(&document(destination, arguments, answer))?;
        } else {
            emit(&format!("{}\n\n{}", line(answer), details(answer)))?;
        }
    }
    ended?;
    if let Some(failure) = state.failure {
        return Err(refused(destination, failure));
    }
    if is_interrupted {
        return Err(Failure::Interrupted("interrupted; what is known is above".to_owned()));
    }
    match answer {
        Some(_) => Ok(()),
        None => Err(Failure::Environment(format!("{destination}: no packet arrived"))),
    }
}

fn progress_line(progress: &PathProgress) -> String {
    let rate = progress.rate.map_or_else(|| "begins".to_owned(), mbit);
    format!("{:.1} s: {rate}", progress.time.as_secs_f64())
}

/// Three digits.
fn mbit(rate: Rate) -> String {
    let mbit = rate.as_mbit_per_sec();
    let digits =
        if mbit >= 100.0 { 0 } else { 1 + usize::from(mbit < 10.0) + usize::from(mbit < 1.0) };
    format!("{mbit:.digits$} Mbit/s")
}

/// A percentage without zeros at its end.
fn percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// The answer: `20.0 Mbit/s, 40 ms, queue 120 ms, loss 0 %`.
fn line(answer: &Answer) -> String {
    let rate = answer.rate.map_or_else(|| "rate unknown".to_owned(), mbit);
    let at_least = if answer.limit.is_some() && answer.rate.is_some() { "at least " } else { "" };
    let why = match answer.limit {
        Some(Limit::Machine) => ": this machine sent no more",
        Some(Limit::MaxRate) => ": the probe sends no more",
        Some(Limit::Time) => ": the time was over",
        None => "",
    };
    let round_trip = answer.round_trip.as_secs_f64() * 1e3;
    let digits = if round_trip < 10.0 { 1 } else { 0 };
    let queue = answer.queue.as_secs_f64() * 1e3;
    let built = if answer.is_queue_full { "" } else { "at least " };
    let loss = answer.loss.map_or_else(|| "unknown".to_owned(), percent);
    let part = if answer.is_partial { " (so far)" } else { "" };
    format!(
        "{at_least}{rate}{why}, {round_trip:.digits$} ms, queue {built}{queue:.0} ms, loss {loss}{part}"
    )
}

fn details(answer: &Answer) -> String {
    let (sent, arrived) = answer.packets;
    let mut lines = Vec::new();
    if let Some(first) = answer.first_rate {
        lines.push(format!("rate at first  {}: a limit that sets in, or others came", mbit(first)));
    }
    let queue = match answer.is_queue_full {
        true => "full: packets were lost, or longer than the path lets it grow",
        false => "no end of it was seen",
    };
    lines.extend([
        format!("queue          {queue}"),
        format!("loss           of {} packets without a queue", answer.loss_of),
        format!(
            "jitter         {:.1} ms without a queue, nine of ten packets",
            answer.jitter.as_secs_f64() * 1e3
        ),
        format!("packets        {sent} sent, {arrived} arrived; {} of data", answer.sent),
        format!("beyond         {} sent beyond the rate at most", answer.beyond),
        format!("time           {:.1} s", answer.time.as_secs_f64()),
    ]);
    lines.join("\n")
}

fn document(destination: SocketAddr, arguments: &Arguments, answer: &Answer) -> Value {
    let limit = answer.limit.map(|limit| match limit {
        Limit::Machine => "machine",
        Limit::MaxRate => "max-rate",
        Limit::Time => "time",
    });
    json!({
        "receiver": destination.to_string(),
        "packet_bytes": arguments.packet,
        "answer": line(answer),
        "rate_bps": answer.rate.map(Rate::as_bits_per_sec),
        "rate_is_least": limit.is_some(),
        "rate_limit": limit,
        "rate_first_bps": answer.first_rate.map(Rate::as_bits_per_sec),
        "round_trip_s": answer.round_trip.as_secs_f64(),
        "queue_s": answer.queue.as_secs_f64(),
        "queue_is_full": answer.is_queue_full,
        "loss": answer.loss,
        "loss_of_packets": answer.loss_of,
        "jitter_s": answer.jitter.as_secs_f64(),
        "sent_packets": answer.packets.0,
        "received_packets": answer.packets.1,
        "sent_bytes": answer.sent.get(),
        "beyond_bytes": answer.beyond.get(),
        "time_s": answer.time.as_secs_f64(),
        "partial": answer.is_partial,
    })
}
