//! From what was sent and arrived to the path's rate, delay and loss over time.

use std::fmt::Write as _;

use ontempo_foundation::{Duration, Rate};

use super::base::BaseFinder;
use super::control::QUEUED;
use super::rate::{self, Departure, USED_SHARE, Window, place_of};
use super::recorder::{MISSING, Noted, Recording};
use super::refused::Refused;

/// Delays without a queue that differ by less are one delay, ns.
const SAME_BASE: i64 = 1_000_000;

/// Arrivals within this are at once, when a delay that falls is looked for, ns.
const AT_ONCE: i64 = 2_000_000;

/// The path in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRow {
    /// Its beginning, since that of the first row.
    pub time: Duration,
    /// Bits with IP headers that the bottleneck sends in a second, those that are lost behind it among them.
    pub rate: Rate,
    /// One-way delay without queue and transmission.
    pub delay: Duration,
    /// Share of packets lost for another reason than the recorder's own queue, 0 to 1; 1 while nothing passed
    /// and nothing waited.
    pub loss: f64,
    /// Whether the rate was seen for most of this window; otherwise it is between those before and
    /// after.
    pub is_measured: bool,
}

/// The path over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order of time, without a gap.
    pub rows: Vec<TraceRow>,
    /// Packets sent, and of these arrived.
    pub packets: (u64, u64),
    /// The path carried all that was allowed: its rate may be higher.
    pub is_limited: bool,
    /// The smallest round trip.
    pub round_trip: Duration,
    /// How long it took until the path was in use: the first row begins then.
    pub left_out: Duration,
    /// What refused packets; those do not count as lost.
    pub refused: Refused,
    /// So much more or less the loss of the whole may be, 0 to 1, as its causes are not told apart better: two standard
    /// errors, by losses as if they were independent.
    pub loss_doubt: f64,
}

impl Trace {
    /// The rows as a schedule of kind `csv` reads them; `comment` is its first line.
    pub fn csv(&self, comment: &str) -> String {
        let comment: String = comment.chars().filter(|letter| !letter.is_control()).collect();
        let mut text = format!("# {comment}\ntime_s,rate_bps,delay_ms,loss\n");
        for row in &self.rows {
            let (time, delay) = (row.time.as_secs_f64(), row.delay.as_secs_f64() * 1e3);
            let (rate, loss) = (row.rate.as_bits_per_sec(), row.loss);
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{time:.3},{rate},{delay:.3},{loss:.4}");
        }
        text
    }
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) number: usize,
    /// Since recording began, ns.
    pub(super) sent: i64,
    /// By the receiver's clock, ns.
    pub(super) at: i64,
    /// Transit of an empty packet without a queue, by both clocks, ns.
    pub(super) base: i64,
    pub(super) bits: f64,
    is_scout: bool,
}

impl Arrival {
    /// When it left the bottleneck, since recording began, ns.
    pub(super) const fn left(&self) -> i64 {
        self.at - self.base
    }

    pub(super) const fn departure(&self) -> Departure {
        Departure { came: self.sent, left: self.left(), bits: self.bits }
    }
}

impl Recording {
    /// What the path was, in windows of this length, at least 1 ms. Without an arrival there are no
    /// rows.
    pub fn trace(&self, window: Duration) -> Trace {
        let window = window.max(Duration::from_millis(1)).as_nanos() as i64;
        let mut arrivals = self.arrivals();
        let packets = (self.packets.len() as u64, arrivals.len() as u64);
        let Some(last) = arrivals.last().copied() else {
            return Trace { packets, ..Trace::default() };
        };
        set_bases(&mut arrivals);
        let left_out = self.leave_out_ramp(&mut arrivals);
        let duration = match self.duration {
            Duration::ZERO => last.sent,
            duration => duration.as_nanos() as i64,
        };
        // What the last arrival says nothing about was not seen.
        let end = (duration - left_out).min(arrivals.last().map_or(0, Arrival::left)).max(1);
        // The last row is of half a window at least.
        let count = usize::try_from((end + window / 2) / window).unwrap_or(1).max(1);
        let losses = self.losses(&arrivals, left_out, window, count);
        let windows = rate::windows(losses.departures(&arrivals, window), window, count);
        let rate = |place: usize| {
            let one = &windows[place];
            losses.policed[place].unwrap_or_else(|| one.rate(window))
        };
        let rates: Vec<f64> = (0..count).map(rate).collect();
        let (reference, one_way) = self.reference(&arrivals, window, &rates);
        let bases = bases_by_window(&arrivals, window, count);
        let rows = (0..count).map(|place| {
            let (base, met) = bases[place];
            let delay = (base - reference) as f64 - self.transmission(met, &rates) + one_way;
            TraceRow {
                time: Duration::from_nanos((place as i64 * window) as u64),
                rate: Rate::from_bits_per_sec(rates[place].round() as u64),
                delay: Duration::from_secs_f64(delay.max(0.0) / 1e9),
                loss: losses.by_window[place].clamp(0.0, 1.0),
                is_measured: windows[place].is_known(window),
            }
        });
        let rows: Vec<_> = rows.collect();
        let most = self.max_rate.as_bits_per_sec() as f64;
        let is_at_most = |window_: &Window| {
            !window_.is_known(window) && window_.bits * 1e9 / window as f64 > USED_SHARE * most
        };
        let at_most = windows.iter().filter(|window| is_at_most(window)).count();
        let round_trip = self.round_trip.map_or(0, |(_, least)| least);
        Trace {
            rows,
            packets,
            is_limited: at_most * 5 > count,
            round_trip: Duration::from_nanos(round_trip as u64),
            left_out: Duration::from_nanos(left_out as u64),
            refused: losses.refused,
            loss_doubt: losses.doubt,
        }
    }

    /// Moves the origin of time to when the path was first in use, and answers it, ns.
    fn leave_out_ramp(&self, arrivals: &mut [Arrival]) -> i64 {
        let max_rate = self.max_rate.as_bits_per_sec() as f64;
        let departures = arrivals.iter().map(Arrival::departure);
        let begun = rate::first_use(departures, max_rate).unwrap_or(0);
        let begun = begun.min(self.policed_since(arrivals).unwrap_or(begun)).max(0);
        for arrival in arrivals {
            arrival.sent -= begun;
            arrival.at -= begun;
        }
        begun
    }

    /// Arrivals in their order, with those of which no report came.
    fn arrivals(&self) -> Vec<Arrival> {
        let bits = |is_scout: bool| if is_scout { self.bits.1 } else { self.bits.0 };
        let arrival = |number: usize, packet: &Noted, at: i64| Arrival {
            number,
            sent: packet.sent,
            at,
            base: 0,
            bits: bits(packet.is_scout),
            is_scout: packet.is_scout,
        };
        let mut known: Vec<(u32, usize)> = (self.packets.iter().enumerate())
            .filter(|(_, packet)| packet.index != MISSING)
            .map(|(number, packet)| (packet.index, number))
            .collect();
        known.sort_unstable();
        // Each number fills one gap, so that a receiver that names low and high ones in turn does not
        // make every gap as long as the recording.
        let missing: Vec<usize> = (self.packets.iter().enumerate())
            .filter(|(_, packet)| packet.index == MISSING)
            .map(|(number, _)| number)
            .collect();
        let mut unused = &missing[..];
        let mut arrivals = Vec::with_capacity(known.len());
        let mut before: Option<(u32, usize)> = None;
        for &(index, number) in &known {
            let packet = &self.packets[number];
            if let Some((last_index, last)) = before
                && last + 1 < number
            {
                let unknown = (index - last_index - 1) as usize;
                let from = self.packets[last].at;
                let span = (packet.at - from).max(0);
                unused = &unused[unused.partition_point(|missing| *missing <= last)..];
                let within = unused.partition_point(|missing| *missing < number);
                let (filling, rest) = unused.split_at(within.min(unknown));
                unused = rest;
                for (place, &number) in (1..).zip(filling) {
                    let at = from + span * place / (unknown as i64 + 1);
                    arrivals.push(arrival(number, &self.packets[number], at));
                }
            }
            arrivals.push(arrival(number, packet, packet.at));
            before = Some((index, number));
        }
        // No two are equal; a stable sort would need half as much memory again.
        arrivals.sort_unstable_by_key(|arrival| (arrival.at, arrival.number));
        arrivals
    }

    /// How long the transmission of a scout took that was met in this window, ns: at the highest rate beside
    /// it, since nothing may have passed for a part of the window.
    fn transmission(&self, place: usize, rates: &[f64]) -> f64 {
        let beside = &rates[place.saturating_sub(1)..(place + 2).min(rates.len())];
        self.bits.1 / beside.iter().copied().fold(1.0, f64::max) * 1e9
    }

    /// The transit without a queue of the packet with the smallest round trip, and its delay: half
    /// of the round trip, both ns and without the time of its transmission.
    fn reference(&self, arrivals: &[Arrival], window: i64, rates: &[f64]) -> (i64, f64) {
        let least = self.round_trip.and_then(|(number, least)| {
            let arrival = arrivals.iter().find(|arrival| arrival.number == number as usize)?;
            Some((arrival, least))
        });
        let Some((arrival, least)) = least else { return (arrivals[0].base, 0.0) };
        let place = place_of(arrival.left(), window, rates.len());
        let transmission = self.transmission(place, rates);
        let transit = (arrival.at - arrival.sent) as f64 - transmission;
        (transit as i64, ((least as f64 - transmission) / 2.0).max(0.0))
    }
}

/// Arrivals of scouts without a queue.
#[derive(Clone, Copy, Debug)]
struct Clear {
    /// Index of the first arrival and of the last.
    span: (usize, usize),
    /// ns.
    transit: i64,
}

fn clears(arrivals: &[Arrival]) -> Vec<Clear> {
    let mut finder = BaseFinder::default();
    let mut clears: Vec<Clear> = Vec::new();
    let mut is_running = false;
    for (place, arrival) in arrivals.iter().enumerate() {
        match finder.on_arrival(arrival.sent, arrival.at, arrival.is_scout) {
            Some(transit) => match clears.last_mut().filter(|_| is_running) {
                Some(clear) => (clear.span.1, clear.transit) = (place, transit),
                None => clears.push(Clear { span: (place - 1, place), transit }),
            },
            None => is_running = false,
        }
        is_running |= clears.last().is_some_and(|clear| clear.span.1 == place);
    }
    clears
}

/// Sets the transit without a queue of each arrival.
fn set_bases(arrivals: &mut [Arrival]) {
    let clears = clears(arrivals);
    let Some(first) = clears.first() else {
        let transits = arrivals.iter().map(|arrival| arrival.at - arrival.sent);
        let least = transits.min().unwrap_or(0);
        return arrivals.iter_mut().for_each(|arrival| arrival.base = least);
    };
    let mut from = 0;
    let mut base = first.transit;
    for clear in &clears {
        let change = clear.transit - base;
        let between = from..clear.span.0;
        let at = match () {
            () if change.abs() < SAME_BASE => clear.span.0,
            () if change > 0 => step_up(&arrivals[between.clone()], base, change) + between.start,
            () => step_down(&arrivals[between.clone()], base, change) + between.start,
        };
        arrivals[from..at].iter_mut().for_each(|arrival| arrival.base = base);
        base = clear.transit;
        from = clear.span.0;
        arrivals[at..=clear.span.1].iter_mut().for_each(|arrival| arrival.base = base);
    }
    arrivals[from..].iter_mut().for_each(|arrival| arrival.base = base);
}

/// The first arrival after a delay that grew by `change` ns: behind the gap that is most too long, for
/// the packets beside it while a queue waited, for the gap as sent otherwise.
fn step_up(arrivals: &[Arrival], base: i64, change: i64) -> usize {
    let pace = |place: usize| {
        let (before, arrival) = (arrivals[place - 1], arrivals[place]);
        (arrival.at - before.at) as f64 / arrival.bits
    };
    let mut most = (change as f64 / 2.0, arrivals.len());
    for place in 2..arrivals.len().saturating_sub(1) {
        let (before, arrival) = (&arrivals[place - 1], &arrivals[place]);
        let expected = match before.at - base - arrival.sent >= QUEUED {
            true => pace(place - 1).max(pace(place + 1)) * arrival.bits,
            false => (arrival.sent - before.sent) as f64,
        };
        let excess = (arrival.at - before.at) as f64 - expected;
        if excess > most.0 {
            most = (excess, place);
        }
    }
    most.1
}

/// The first arrival after a delay that fell by `-change` ns: where most arrive at once, and not
/// after one that is too early for the longer delay.
fn step_down(arrivals: &[Arrival], base: i64, change: i64) -> usize {
    let early = |arrival: &Arrival| arrival.at - arrival.sent < base - SAME_BASE;
    let early = arrivals.iter().position(early).unwrap_or(arrivals.len());
    let mut end = 0;
    let mut most = (0.0, early);
    let mut bits = 0.0;
    for (place, first) in arrivals[..early].iter().enumerate() {
        while end < arrivals.len() && arrivals[end].at <= first.at + AT_ONCE {
            bits += arrivals[end].bits;
            end += 1;
        }
        if bits > most.0 {
            most = (bits, place);
        }
        bits -= first.bits;
    }
    let span = (arrivals.last(), arrivals.first());
    let (Some(last), Some(first)) = span else { return early };
    let all: f64 = arrivals.iter().map(|arrival| arrival.bits).sum();
    let usual = all / (last.at - first.at).max(1) as f64;
    // Half of what the longer delay held must come at once.
    if most.0 > usual * (AT_ONCE - change / 2) as f64 { most.1 } else { early }
}

/// The transit without a queue in each window, that of the last arrival up to its middle, and the window
/// in which it was met.
fn bases_by_window(arrivals: &[Arrival], window: i64, count: usize) -> Vec<(i64, usize)> {
    let clears = clears(arrivals);
    let met = |clear: &Clear| place_of(arrivals[clear.span.0].left(), window, count);
    let (mut place, mut next) = (0, 0);
    let mut base = arrivals[0].base;
    let mut bases = Vec::with_capacity(count);
    for middle in (0..count as i64).map(|number| number * window + window / 2) {
        while place < arrivals.len() && arrivals[place].left() <= middle {
            base = arrivals[place].base;
            place += 1;
        }
        while clears.get(next + 1).is_some_and(|clear| clear.span.0 <= place) {
            next += 1;
        }
        // Before the pause that showed it a changed delay is that of the next one.
        let around = clears.iter().skip(next).take(2);
        let clear = around.min_by_key(|clear| (clear.transit - base).abs());
        bases.push((base, clear.map_or(bases.len(), met)));
    }
    bases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_and_high_numbers_in_turn_fill_each_gap_once() {
        let half = 1_000;
        let noted = |number: usize| {
            // Of the upper and the lower half in turn each second one is reported, as every third arrival.
            let (is_high, place) = (number >= half, number % half);
            let index = (place % 2 == 0).then(|| 3 * (place + usize::from(is_high)) as u32);
            Noted {
                sent: number as i64 * 1_000_000,
                at: number as i64 * 1_000_000,
                index: index.unwrap_or(MISSING),
                is_scout: false,
            }
        };
        let packets: Vec<Noted> = (0..2 * half).map(noted).collect();
        let recording = Recording { packets, ..Recording::default() };
        let mut numbers: Vec<usize> = recording.arrivals().iter().map(|one| one.number).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "no packet arrives twice");
    }
}
