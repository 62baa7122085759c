//! Peers that have shaken hands, and then say whatever a message can say, in virtual time.
//!
//! `ONTEMPO_HOSTILE_SEEDS=100000` runs as many, in place of a few hundred.

use std::collections::BTreeSet;

use ontempo_foundation::Time;
use ontempo_mechanisms::qos::{Hysteresis, Parameter, agree};
use ontempo_testing::hostile::{Dice, seeds};

use super::*;
use crate::incoming::Incoming;
use crate::offset::Sample;
use crate::outgoing::{LadderOptions, Outgoing};
use crate::wire::{Change, Header, Kind, MAX_MESSAGE_LEN, Pong, Refused, Status, TCP_HEADER};

/// Peers, unless the environment says how many.
const SEEDS: u64 = 300;
const MESSAGES: usize = 400;

/// A body that is often of the right length for its kind.
fn control(dice: &mut Dice, known: u64) -> Vec<u8> {
    let right = match dice.below(4) {
        0 => Status::default().to_bytes().len(),
        1 => Pong { echo: 0, arrived: 0 }.to_bytes().len(),
        2 => Change { number: 0, send: video() }.to_bytes().len(),
        _ => Refused { reason: String::new() }.to_bytes().len(),
    };
    let length = if dice.once_in(8) { dice.below(400) as usize } else { right };
    dice.bytes(length, known)
}

/// One connection of a hostile peer.
fn play(seed: u64) {
    let mut peer = Dice::new(seed, "peer");
    let asked = if peer.below(2) == 0 { video() } else { Specification::default() };
    let mut now = Time::from_nanos(peer.below(1 << 50));
    let hello = [0; 4].map(|_: u64| peer.number(now.as_nanos()));
    let sample = Sample::of_exchange(hello[0], hello[1], hello[2], now)
        .or_else(|| Sample::of_exchange(now.as_nanos(), 0, 0, now));
    let Some(sample) = sample else { return };
    let mut incoming = Incoming::new(now, asked, Hysteresis::default(), sample, true);
    let step = Duration::from_secs(1);
    let ladder = LadderOptions {
        below: vec![Specification::default()],
        step_down_after: step,
        step_up_after: step,
    };
    let mut outgoing = Outgoing::new(now, asked, Specification::default(), asked, Some(&ladder));
    let (mut delivered, mut known, mut bytes) = (BTreeSet::new(), 0_u64, 0_u64);
    for _ in 0..MESSAGES {
        now += Duration::from_nanos(peer.below(700_000_000));
        let mut violations = Vec::new();
        match peer.below(8) {
            0..=2 => {
                let head = Header {
                    kind: Kind::Data,
                    length: peer.below(2_000) as usize,
                    sequence: peer.number(known) as u32,
                    sent: peer.number(now.as_nanos()),
                };
                let header = Header::of_tcp(&head.to_tcp(), MAX_MESSAGE_LEN).expect("its own");
                let arrival = incoming.on_message(
                    now,
                    header.length,
                    header.sequence,
                    header.sent,
                    &mut violations,
                );
                if let Some(arrival) = arrival {
                    assert!(delivered.insert(arrival.sequence), "{seed}: a duplicate");
                    known = arrival.sequence;
                }
            }
            3 => {
                let head: [u8; TCP_HEADER] =
                    peer.bytes(TCP_HEADER, known).try_into().expect("its length");
                if let Ok(header) = Header::of_tcp(&head, 1_280) {
                    assert!(header.length <= 1_280.max(crate::wire::MAX_CONTROL_LEN), "{seed}");
                }
            }
            4 => {
                let mut body = control(&mut peer, known);
                if let Ok(status) = Status::read(&body) {
                    incoming.on_status(now, &status, &mut violations);
                    let turned = outgoing.on_status(now, status.change, status.figures);
                    assert!(turned.len() <= Parameter::ALL.len(), "{seed}");
                }
                // Whatever is read is written alike.
                body.clear();
                body.extend(control(&mut peer, known));
                if let Ok(pong) = Pong::read(&body) {
                    let sample =
                        Sample::of_exchange(pong.echo, pong.arrived, peer.number(known), now);
                    if let Some(sample) = sample {
                        incoming.on_sample(now, sample);
                    }
                }
            }
            5 => {
                let body = control(&mut peer, known);
                if let Ok(Change { send, .. }) = Change::read(&body)
                    && let Ok(agreed) = agree(&send, &asked)
                {
                    incoming.change(agreed);
                }
                if let Ok(refused) = Refused::read(&body) {
                    assert!(refused.reason.len() <= 160 * 6, "{seed}: {}", refused.reason.len());
                }
            }
            6 => {
                bytes = bytes.saturating_add(peer.below(1 << 40));
                outgoing.on_tick(now, bytes, false);
            }
            _ => incoming.advance(now, &mut violations),
        }
        // Two turns of each parameter in each interval, of which two end at most.
        assert!(violations.len() <= 8 * Parameter::ALL.len(), "{seed}: {}", violations.len());
        let figures = incoming.figures();
        assert!(figures.loss.is_none_or(|loss| loss <= 100_000), "{seed}: {figures:?}");
        assert!(u32::from(figures.violated) < 1 << Parameter::ALL.len(), "{seed}");
    }
}

#[test]
fn whatever_a_peer_says_is_counted_within_bounds() {
    seeds(SEEDS).for_each(play);
}
