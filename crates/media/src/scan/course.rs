//! The streams of a film, which are those of one program, as its tables change.

use std::collections::{BTreeMap, BTreeSet};

use super::FilmError;
use super::demultiplexer::Demultiplexer;
use crate::packets::Packets;
use crate::ts::{self, Content, Header, Multiplex, NamedStream};

/// Changes of the tables that are followed; a film has one where its programs or their streams change.
const MAX_CHANGES: usize = 1_024;

/// Streams that are read: the one of pictures, and those of sound.
const MAX_PLACES: usize = 512;

/// What the tables name from a packet on.
struct State {
    /// The number of that packet.
    from: usize,
    /// program_number and the PID of the PMT, in the order of the PAT.
    order: Vec<(u16, u16)>,
    /// The streams of each program.
    programs: Vec<Vec<NamedStream>>,
}

impl State {
    fn of(multiplex: &Multiplex, from: usize) -> Self {
        let programs = multiplex.programs().filter(|streams| !streams.is_empty());
        let programs = programs.map(<[NamedStream]>::to_vec).collect();
        Self { from, order: multiplex.order().to_vec(), programs }
    }

    fn streams(&self) -> impl Iterator<Item = &NamedStream> {
        self.programs.iter().flatten()
    }

    /// The streams of this program.
    fn program(&self, number: u16) -> &[NamedStream] {
        let is_it = |one: &&Vec<NamedStream>| one.iter().any(|stream| stream.program == number);
        self.programs.iter().find(is_it).map_or(&[], Vec::as_slice)
    }
}

/// Where the film's streams are from a packet on.
#[derive(Debug)]
struct Part {
    /// The number of that packet.
    from: usize,
    /// The places of PIDs.
    places: BTreeMap<u16, usize>,
    /// PIDs that any program has.
    named: BTreeSet<u16>,
}

/// The streams of the first program with pictures: its first one of pictures at place 0, those of sound at the others.
#[derive(Debug)]
pub(super) struct Course {
    /// How each place is coded.
    pub(super) streams: Vec<NamedStream>,
    parts: Vec<Part>,
}

impl Course {
    /// That of the film in these bytes, and sentences about what is left out.
    pub(super) fn of(bytes: &[u8]) -> Result<(Self, Vec<String>), FilmError> {
        let mut untold = Vec::new();
        let states = states(bytes, &mut untold)?;
        let named: BTreeSet<u16> =
            states.iter().flat_map(State::streams).map(|one| one.pid).collect();
        let mut all = states.iter().flat_map(State::streams);
        if !all.any(|one| one.content == Content::Video) {
            return Err(FilmError::NoStream(named.len()));
        }
        let (course, others) = Self::follow(&states);
        let used: BTreeSet<u16> =
            course.parts.iter().flat_map(|part| part.places.keys().copied()).collect();
        let left_out = named.difference(&used).count();
        if left_out > 0 {
            untold.push(format!(
                "streams that are left out, being of other programs, further ones of pictures or of \
                 unknown content: {left_out}"
            ));
        }
        if others > 0 {
            untold.push(format!(
                "parts of the film whose pictures have another coding, which are left out: {others}"
            ));
        }
        Ok((course, untold))
    }

    /// The program's streams through all states, and parts whose pictures have another coding than the first ones.
    fn follow(states: &[State]) -> (Self, usize) {
        let mut course = Self { streams: Vec::new(), parts: Vec::new() };
        let (mut pids, mut others, mut last): (Vec<u16>, usize, &[NamedStream]) =
            (Vec::new(), 0, &[]);
        for (state, program) in states.iter().zip(chosen(states)) {
            let streams = program.map_or(&[][..], |number| state.program(number));
            let is_same = streams == last || streams.is_empty() && course.parts.is_empty();
            if !is_same {
                last = streams;
                let (places, is_other) = course.places(streams, &mut pids);
                others += usize::from(is_other);
                // What comes before the first tables is theirs, too.
                let from = if course.parts.is_empty() { 0 } else { state.from };
                let named = BTreeSet::new();
                course.parts.push(Part { from, places, named });
            }
            if let Some(part) = course.parts.last_mut() {
                part.named.extend(state.streams().map(|one| one.pid));
            }
        }
        (course, others)
    }

    /// The places of a program's streams, and whether its pictures have another coding than before; `pids` is where
    /// each place was last.
    fn places(
        &mut self,
        streams: &[NamedStream],
        pids: &mut Vec<u16>,
    ) -> (BTreeMap<u16, usize>, bool) {
        let mut places = BTreeMap::new();
        let of = |content: Content| streams.iter().filter(move |one| one.content == content);
        if self.streams.is_empty() {
            let Some(first) = of(Content::Video).next() else { return (places, false) };
            self.streams.push(*first);
            pids.push(first.pid);
        }
        let is_like = |one: &NamedStream, other: &NamedStream| {
            (one.stream_type, one.channel_code) == (other.stream_type, other.channel_code)
        };
        let mut of_pictures = of(Content::Video).filter(|one| is_like(one, &self.streams[0]));
        let is_there = of_pictures.clone().any(|one| one.pid == pids[0]);
        let pictures = if is_there { Some(pids[0]) } else { of_pictures.next().map(|one| one.pid) };
        if let Some(pid) = pictures {
            pids[0] = pid;
            places.insert(pid, 0);
        }
        let is_other = pictures.is_none() && of(Content::Video).next().is_some();
        // First those that stay where they are.
        let mut taken = BTreeSet::new();
        for stays in [true, false] {
            for one in of(Content::Audio) {
                if places.contains_key(&one.pid) {
                    continue;
                }
                let found = (1..pids.len()).find(|&place| {
                    is_like(one, &self.streams[place])
                        && !taken.contains(&place)
                        && (!stays || pids[place] == one.pid)
                });
                let place = match found {
                    Some(place) => place,
                    None if stays || pids.len() >= MAX_PLACES => continue,
                    None => {
                        self.streams.push(*one);
                        pids.push(one.pid);
                        pids.len() - 1
                    }
                };
                pids[place] = one.pid;
                taken.insert(place);
                places.insert(one.pid, place);
            }
        }
        (places, is_other)
    }

    /// All packets in turn, and which PIDs the film's streams have at each.
    pub(super) fn packets<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], Header, Pids<'a>)> {
        let mut part = 0;
        Packets::of(bytes).enumerate().filter_map(move |(number, packet)| {
            while self.parts.get(part + 1).is_some_and(|next| next.from <= number) {
                part += 1;
            }
            let pids = Pids { now: self.parts.get(part)?, next: self.parts.get(part + 1) };
            Some((packet, ts::header(packet)?, pids))
        })
    }
}

/// Which PIDs the film's streams have at a packet.
#[derive(Clone, Copy)]
pub(super) struct Pids<'a> {
    now: &'a Part,
    next: Option<&'a Part>,
}

impl Pids<'_> {
    /// The place of a PID. One that no program has is that of the table to come, or still that of the table before
    /// as long as its successor has not begun.
    pub(super) fn place(&self, pid: u16, demultiplexer: &Demultiplexer) -> Option<usize> {
        if let Some(place) = self.now.places.get(&pid) {
            return Some(*place);
        }
        if self.now.named.contains(&pid) {
            return None;
        }
        let next = self.next.and_then(|next| next.places.get(&pid).copied());
        next.or_else(|| demultiplexer.place(pid))
    }
}

/// What the tables in these bytes name, from their changes on.
fn states(bytes: &[u8], untold: &mut Vec<String>) -> Result<Vec<State>, FilmError> {
    let (mut multiplex, mut states) = (Multiplex::default(), Vec::new());
    let mut packets = Packets::of(bytes);
    let (mut number, mut not_followed) = (0, 0_u64);
    for packet in packets.by_ref() {
        let changes = multiplex.changes();
        if let Some(header) = ts::header(packet) {
            multiplex.learn(packet, &header);
        }
        if multiplex.changes() > changes {
            match states.len() < MAX_CHANGES {
                true => states.push(State::of(&multiplex, number)),
                false => not_followed += 1,
            }
        }
        number += 1;
    }
    let is_none = packets.at() == packets.skipped.1 && !bytes.is_empty();
    if let Some(at) = packets.lost.or(is_none.then_some(0)) {
        return Err(FilmError::NoPacket(at));
    }
    let (places, skipped) = packets.skipped;
    if places > 0 {
        untold.push(format!(
            "places where no packet begins, whose bytes are left out ({skipped} bytes): {places}"
        ));
    }
    if packets.cut > 0 {
        untold.push(format!("bytes of a packet that is cut at the end, left out: {}", packets.cut));
    }
    if not_followed > 0 {
        untold.push(format!(
            "changes of the tables after the first {MAX_CHANGES}, which are not followed: {not_followed}"
        ));
    }
    Ok(states)
}

/// The program whose film it is in each state: the first one of the PAT that has pictures, until the PAT no longer names it.
fn chosen(states: &[State]) -> Vec<Option<u16>> {
    let (mut all, mut now) = (Vec::with_capacity(states.len()), None);
    let mut left = states;
    while let Some(first) = left.first() {
        // One PAT, whose sections come one after the other; a PMT may come later than that of a later program.
        let mut order = &first.order;
        let mut count = 0;
        while let Some(state) = left.get(count).filter(|one| one.order.starts_with(order)) {
            order = &state.order;
            count += 1;
        }
        let (these, rest) = left.split_at(count);
        let is_named = |number: u16| order.iter().any(|(program, _)| *program == number);
        if !now.is_some_and(is_named) {
            let streams = these.iter().flat_map(State::streams);
            let with: Vec<u16> = streams
                .filter(|one| one.content == Content::Video)
                .map(|one| one.program)
                .collect();
            let with_pictures: BTreeSet<u16> = with.iter().copied().collect();
            let mut numbers = order.iter().map(|(number, _)| *number);
            let first = numbers.find(|number| with_pictures.contains(number));
            now = first.or(with.first().copied()).or(now);
        }
        all.extend(std::iter::repeat_n(now, count));
        left = rest;
    }
    all
}
