use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(84);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A sender that hears of its packets one report after it sent them.
struct World {
    spacing: Spacing,
    sent: u64,
    received: u64,
}

impl World {
    fn new(parameters: SpacingParameters) -> Self {
        Self { spacing: Spacing::new(parameters, RTT), sent: 0, received: 0 }
    }

    /// A round trip of 100 packets, of which `lost` are reported lost at its end.
    fn round(&mut self, lost: u64) -> Duration {
        self.sent += 100;
        self.received += 100 - lost;
        let report = Report { next: self.sent, received: Packets::new(self.received) };
        self.spacing.on_report(report, self.sent);
        self.spacing.spacing()
    }
}

#[test]
fn by_default_it_decides_on_fresh_reports_and_grows_by_a_packet_per_round_trip() {
    for ours in [
        SpacingParameters::psp(),
        SpacingParameters::damped(),
        PspParameters::default().0,
        DampedPspParameters::default().0,
    ] {
        assert_eq!(ours.feedback, Feedback::Fresh);
        assert_eq!(ours.increase, Increase::PacketPerRoundTrip);
        let published = ours.as_published();
        assert_eq!(published.feedback, Feedback::EachReport);
        assert_eq!(published.increase, Increase::FixedStep);
    }
}

#[test]
fn losses_double_the_spacing_from_fifty_microseconds_to_a_round_trip() {
    let mut world = World::new(SpacingParameters::psp().as_published());
    let steps: Vec<Duration> = (0..13).map(|_| world.round(1)).collect();
    assert_eq!(steps[..4], [micros(50), micros(100), micros(200), micros(400)]);
    // The ideal between 0 and 2 ms is found within seven round trips (psp, section 2.1).
    assert!(steps[6] >= micros(2000));
    assert_eq!(steps[11..], [RTT, RTT]);
}

#[test]
fn without_loss_the_spacing_shrinks_by_two_microseconds_to_nothing() {
    let mut world = World::new(SpacingParameters::psp().as_published());
    world.round(1);
    assert_eq!(world.round(0), micros(48));
    assert_eq!((0..30).map(|_| world.round(0)).last(), Some(Duration::ZERO));
}

#[test]
fn damped_a_loss_after_a_decrease_restores_the_spacing_before_it() {
    let mut world = World::new(SpacingParameters::damped().as_published());
    for _ in 0..3 {
        world.round(1);
    }
    assert_eq!(world.round(0), micros(198));
    // Sent at 198 us, and lost.
    assert_eq!(world.round(1), micros(200));
    // Sent at the restored spacing, and lost still: others have come.
    assert_eq!(world.round(1), micros(400));
}

#[test]
fn it_may_begin_at_a_spacing_of_at_most_a_round_trip() {
    let first = Report { next: 50, received: Packets::new(40) };
    let begin = |spacing| {
        Spacing::starting_at(SpacingParameters::psp().as_published(), RTT, spacing, first, 60)
    };
    assert_eq!([micros(700), RTT * 2].map(|at| begin(at).spacing()), [micros(700), RTT]);
    let mut spacing = begin(micros(700));
    spacing.on_report(Report { next: 60, received: Packets::new(50) }, 60);
    assert_eq!((spacing.losses(), spacing.spacing()), (0, micros(698)));
}

#[test]
fn plain_a_loss_after_a_decrease_doubles() {
    let mut world = World::new(SpacingParameters::psp().as_published());
    for _ in 0..3 {
        world.round(1);
    }
    world.round(0);
    assert_eq!(world.round(1), micros(396));
}

#[test]
fn a_loss_is_laid_to_the_decision_that_its_packets_were_sent_under() {
    let mut spacing = Spacing::new(SpacingParameters::damped().as_published(), RTT);
    let report = |next, received| Report { next, received: Packets::new(received) };
    spacing.on_report(report(100, 99), 300);
    spacing.on_report(report(200, 199), 400);
    assert_eq!(spacing.spacing(), micros(48));
    spacing.on_report(report(300, 299), 500);
    assert_eq!(spacing.spacing(), micros(46));
    // Packets 300 to 399 were sent at 50 us, reached by doubling: double again.
    spacing.on_report(report(400, 398), 600);
    assert_eq!(spacing.spacing(), micros(92));
    // Packets 400 to 499 were sent at 48 us, a decrease from 50 us: 92 us is enough.
    spacing.on_report(report(500, 497), 700);
    assert_eq!(spacing.spacing(), micros(92));
}

#[test]
fn damped_by_the_last_decision_a_loss_after_a_decrease_restores_whatever_it_was_sent_at() {
    let mut spacing = Spacing::new(SpacingParameters::damped_by_last().as_published(), RTT);
    let report = |next, received| Report { next, received: Packets::new(received) };
    spacing.on_report(report(100, 99), 300);
    spacing.on_report(report(200, 199), 400);
    assert_eq!(spacing.spacing(), micros(48));
    // Packets 200 to 299 were sent without spacing; the last decision was a decrease.
    spacing.on_report(report(300, 298), 500);
    assert_eq!(spacing.spacing(), micros(50));
    // Now it was none.
    spacing.on_report(report(400, 397), 600);
    assert_eq!(spacing.spacing(), micros(100));
}

#[test]
fn on_fresh_reports_one_loss_doubles_once_however_often_it_is_reported() {
    let report = |next, received| Report { next, received: Packets::new(received) };
    let doubled = |feedback| {
        let mut spacing =
            Spacing::new(SpacingParameters::damped().as_published().on(feedback), RTT);
        // 300 packets are under way when the first report decides: all are sent too close.
        spacing.on_report(report(100, 90), 300);
        spacing.on_report(report(200, 180), 350);
        spacing.on_report(report(300, 270), 400);
        spacing.spacing()
    };
    assert_eq!(doubled(Feedback::EachReport), micros(200));
    assert_eq!(doubled(Feedback::Fresh), micros(50));
}

#[test]
fn on_fresh_reports_a_report_counts_that_begins_at_the_present_spacing() {
    let report = |next, received| Report { next, received: Packets::new(received) };
    let mut spacing =
        Spacing::new(SpacingParameters::damped().as_published().on(Feedback::Fresh), RTT);
    spacing.on_report(report(100, 99), 300);
    // Packets 290 to 299 were sent without spacing.
    spacing.on_report(report(290, 280), 350);
    spacing.on_report(report(340, 329), 400);
    assert_eq!((spacing.spacing(), spacing.losses()), (micros(50), 1));
    spacing.on_report(report(390, 379), 450);
    assert_eq!(spacing.spacing(), micros(48));
    // Up to 449 they were sent at 50 us: neither a loss nor none decides.
    spacing.on_report(report(450, 430), 500);
    assert_eq!((spacing.spacing(), spacing.losses()), (micros(48), 1));
    spacing.on_report(report(490, 469), 550);
    assert_eq!((spacing.spacing(), spacing.losses()), (micros(50), 2));
}

#[test]
fn on_fresh_reports_silence_counts_once_packets_at_the_present_spacing_are_overdue() {
    let mut spacing =
        Spacing::new(SpacingParameters::psp().as_published().on(Feedback::Fresh), RTT);
    let silent = Report { next: 10, received: Packets::new(10) };
    spacing.on_report(silent, 20);
    spacing.on_report(silent, 20);
    spacing.on_report(silent, 20);
    assert_eq!(spacing.spacing(), micros(50));
    spacing.on_report(silent, 30);
    spacing.on_report(silent, 40);
    assert_eq!(spacing.spacing(), micros(50), "packets 20 to 29 may be on their way");
    spacing.on_report(silent, 50);
    assert_eq!((spacing.losses(), spacing.spacing()), (2, micros(100)));
}

#[test]
fn it_may_begin_with_packets_of_another_spacing_under_way() {
    let fresh = SpacingParameters::psp().as_published().on(Feedback::Fresh);
    let first = Report { next: 50, received: Packets::new(40) };
    let mut spacing = Spacing::starting_at(fresh, RTT, micros(700), first, 80);
    spacing.on_report(Report { next: 80, received: Packets::new(60) }, 110);
    assert_eq!((spacing.losses(), spacing.spacing()), (0, micros(700)));
    spacing.on_report(Report { next: 100, received: Packets::new(79) }, 120);
    assert_eq!((spacing.losses(), spacing.spacing()), (1, micros(1400)));
}

#[test]
fn a_packet_more_in_each_round_trip_shrinks_long_spacings_faster() {
    let ours = SpacingParameters::psp().as_published().growing_by(Increase::PacketPerRoundTrip);
    let after = |spacing| {
        let report = |next| Report { next, received: Packets::new(next) };
        let mut sender = Spacing::starting_at(ours, RTT, spacing, report(10), 20);
        sender.on_report(report(30), 40);
        sender.spacing()
    };
    // 10 packets in a round trip, then 11.
    assert_eq!(after(RTT / 10), Duration::from_nanos(RTT.as_nanos() * 10 / 110 + 1));
    assert_eq!(after(RTT), RTT / 2);
    // 840 packets in a round trip: one more were 0.12 us.
    assert_eq!(after(micros(100)), micros(98));
    assert_eq!(after(Duration::ZERO), Duration::ZERO);
}

#[test]
fn packets_under_way_are_not_lost() {
    let mut spacing = Spacing::new(SpacingParameters::psp().as_published(), RTT);
    spacing.on_report(Report { next: 100, received: Packets::new(100) }, 10_000);
    assert_eq!(spacing.losses(), 0);
}

#[test]
fn reports_without_any_packet_tell_of_loss_once_it_is_overdue() {
    let mut spacing = Spacing::new(SpacingParameters::psp().as_published(), RTT);
    let silent = Report { next: 10, received: Packets::new(10) };
    spacing.on_report(silent, 20);
    spacing.on_report(silent, 20);
    assert_eq!(spacing.losses(), 0, "packets 10 to 19 may be on their way");
    spacing.on_report(silent, 20);
    assert_eq!((spacing.losses(), spacing.spacing()), (1, micros(50)));
}

#[test]
fn an_overtaken_report_says_nothing() {
    let mut spacing = Spacing::new(SpacingParameters::psp().as_published(), RTT);
    spacing.on_report(Report { next: 10, received: Packets::new(10) }, 20);
    spacing.on_report(Report { next: 5, received: Packets::new(4) }, 20);
    assert_eq!(spacing.losses(), 0);
}

#[test]
fn the_counter_tells_totals() {
    let mut counter = ReportCounter::default();
    for number in [0, 1, 3, 2, 7] {
        counter.on_packet(number);
    }
    assert_eq!(counter.report(), Report { next: 8, received: Packets::new(5) });
}

proptest! {
    #[test]
    fn the_spacing_stays_between_nothing_and_a_round_trip_and_memory_is_bounded(
        reports in prop::collection::vec((0u64..50, 0u64..50, 0u64..50), 0..500),
        damping in prop::sample::select(
            vec![None, Some(Damping::AsSent), Some(Damping::LastDecision)]
        ),
        feedback in prop::sample::select(vec![Feedback::EachReport, Feedback::Fresh]),
        increase in prop::sample::select(vec![Increase::FixedStep, Increase::PacketPerRoundTrip]),
    ) {
        let parameters =
            SpacingParameters { damping, feedback, increase, ..SpacingParameters::psp() };
        let mut spacing = Spacing::new(parameters, RTT);
        let (mut next, mut received, mut sent) = (0, 0, 0);
        for (came, lost, ahead) in reports {
            next += came;
            received += came.saturating_sub(lost);
            sent = next.max(sent) + ahead;
            spacing.on_report(Report { next, received: Packets::new(received) }, sent);
            prop_assert!(spacing.spacing() <= RTT);
            prop_assert!((1..=MAX_EPOCHS).contains(&spacing.epochs.len()));
        }
    }
}
