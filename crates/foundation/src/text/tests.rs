use proptest::prelude::*;

use super::*;

fn error<T: FromStr<Err = UnitError> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn durations_are_read_in_every_unit() {
    let nanos = |text: &str| text.parse::<Duration>().unwrap().as_nanos();
    assert_eq!(nanos("30 ms"), 30_000_000);
    assert_eq!(nanos("1.5 s"), 1_500_000_000);
    assert_eq!(nanos("50 us"), 50_000);
    assert_eq!(nanos("50 \u{b5}s"), 50_000);
    assert_eq!(nanos("10 ns"), 10);
    assert_eq!(nanos("2 min"), 120_000_000_000);
    assert_eq!(nanos("1 h"), 3_600_000_000_000);
    assert_eq!(nanos(" 30ms "), 30_000_000);
    assert_eq!(nanos("1e-05 s"), 10_000);
    assert_eq!(nanos("0 s"), 0);
}

#[test]
fn rates_bytes_and_packets_are_read_in_every_unit() {
    let bits = |text: &str| text.parse::<Rate>().unwrap().as_bits_per_sec();
    assert_eq!(bits("25 Mbit/s"), 25_000_000);
    assert_eq!(bits("300 kbit/s"), 300_000);
    assert_eq!(bits("1.5 Gbit/s"), 1_500_000_000);
    assert_eq!(bits("800 bit/s"), 800);
    assert_eq!("unlimited".parse(), Ok(Rate::UNLIMITED));
    let bytes = |text: &str| text.parse::<Bytes>().unwrap().get();
    assert_eq!(bytes("1000 bytes"), 1000);
    assert_eq!(bytes("1 byte"), 1);
    assert_eq!(bytes("7 B"), 7);
    assert_eq!(bytes("500 kB"), 500_000);
    assert_eq!(bytes("1.5 MB"), 1_500_000);
    assert_eq!(bytes("64 KiB"), 65_536);
    assert_eq!("150 packets".parse(), Ok(Packets::new(150)));
    assert_eq!("1 packet".parse(), Ok(Packets::new(1)));
}

#[test]
fn a_fraction_is_rounded_to_the_nearest_nanosecond_without_floating_point() {
    let nanos = |text: &str| text.parse::<Duration>().unwrap().as_nanos();
    assert_eq!(nanos("0.30000000000000004 s"), 300_000_000);
    assert_eq!(nanos("0.1234567895 s"), 123_456_790);
    assert_eq!(nanos("0.12345678949999999999999999999999999999999 s"), 123_456_789);
    assert_eq!(nanos("9007199.254740993 s"), 9_007_199_254_740_993);
}

#[test]
fn a_missing_unit_is_reported_with_an_example() {
    assert_eq!(error::<Duration>("30"), "missing unit: write \"30 ms\", not 30");
    assert_eq!(error::<Rate>("2.5"), "missing unit: write \"2.5 Mbit/s\", not 2.5");
}

#[test]
fn a_unit_of_another_quantity_is_distinguished_from_an_unknown_one() {
    assert_eq!(
        error::<Duration>("3 Mbit/s"),
        "`3 Mbit/s` is a rate; a duration is needed, such as \"30 ms\""
    );
    assert_eq!(
        error::<Rate>("25 Mbps"),
        "`25 Mbps` has the unknown unit `Mbps`; a rate is written in bit/s, kbit/s, Mbit/s, \
         Gbit/s"
    );
}

#[test]
fn negative_and_non_numeric_text_is_refused() {
    for text in ["", "ms", "fast", "nan s", "inf s", "+3 s", ".5 s", "5. s", "1.2.3 s", "-x s"] {
        let message = error::<Duration>(text);
        assert!(message.contains("does not begin with a number"), "{message}");
    }
    assert_eq!(error::<Duration>("-3 ms"), "`-3 ms` is negative; a duration is zero or more");
}

#[test]
fn extreme_values_are_refused() {
    assert_eq!(
        error::<Duration>("10000000 h"),
        "`10000000 h` is too large; a duration is at most 584 years"
    );
    assert!(error::<Rate>("18446744073709551615 bit/s").contains("too large"));
    assert!(error::<Bytes>("1e2147483647 GB").contains("too large"));
    assert!(error::<Bytes>("1e99999999999 GB").contains("number"));
    assert!(error::<Packets>(&format!("{} packets", "9".repeat(1000))).contains("too large"));
    assert_eq!(
        error::<Duration>("0.1 ns"),
        "`0.1 ns` is too small; a duration is zero or at least 1 ns"
    );
    assert!(error::<Duration>("1e-2147483648 s").contains("too small"));
    assert!(error::<Packets>("2.5 packets").contains("`2.5 packets` is not whole"));
    assert!(error::<Bytes>("0.3 B").contains("not whole"));
}

proptest! {
    #[test]
    fn displayed_values_parse_back_to_themselves(number in any::<u64>(), shift in 0u32..64) {
        let number = number >> shift;
        let (span, rate) = (Duration::from_nanos(number), Rate::from_bits_per_sec(number));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        prop_assert_eq!(Bytes::new(number).to_string().parse(), Ok(Bytes::new(number)));
        prop_assert_eq!(Packets::new(number).to_string().parse(), Ok(Packets::new(number)));
    }

    #[test]
    fn arbitrary_text_never_panics(
        number in "[-+0-9.eE]{0,40}", unit in "( ?[a-zA-Z/µ]{0,6}|\\PC{0,6})"
    ) {
        let text = format!("{number}{unit}");
        _ = (text.parse::<Duration>(), text.parse::<Rate>());
        _ = (text.parse::<Bytes>(), text.parse::<Packets>());
    }
}

#[test]
fn more_than_100_per_cent_is_refused() {
    assert_eq!("12.5 %".parse(), Ok(Percent::from_thousandths(12_500)));
    assert_eq!(error::<Percent>("101 %"), "`101 %` is too large; a share is at most 100 %");
    assert_eq!("23.976 messages/s".parse(), Ok(MessageRate::from_thousandths(23_976)));
    assert_eq!(error::<MessageRate>("60"), "missing unit: write \"60 messages/s\", not 60");
}

#[test]
fn the_largest_values_read_back() {
    assert_eq!(Duration::MAX.to_string().parse(), Ok(Duration::MAX));
    assert_eq!(Rate::UNLIMITED.to_string().parse(), Ok(Rate::UNLIMITED));
}
