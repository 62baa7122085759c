//! A film that is made up has the rate, the group of pictures and the chains that were asked for.

use super::*;

fn films() -> impl Iterator<Item = (GeneratorParameters, FrameTable)> {
    let mut random = RandomStream::new(1, "generator parameters");
    let mut below = move |low: u64, high: u64| low + random.next_u64() % (high - low);
    (0..300).map(move |seed| {
        let rates = [5.0, 23.976, 25.0, 29.97, 50.0, 60.0];
        let parameters = GeneratorParameters {
            rate: Rate::from_bits_per_sec(below(100_000, 20_000_000)),
            picture_rate: rates[below(0, 6) as usize],
            key_distance: below(1, 130) as u32,
            b_pictures: below(0, 4) as u32,
            variability: below(0, 100) as f64 / 100.0,
            is_constant: below(0, 2) == 1,
            sound: (below(0, 4) > 0).then(GeneratedSound::default),
            duration: Duration::from_millis(below(1, 9_000)),
            seed,
            ..GeneratorParameters::default()
        };
        (parameters, generate(&parameters).expect("valid parameters"))
    })
}

fn pictures(table: &FrameTable) -> Vec<(usize, &Frame)> {
    let frames = table.frames.iter().enumerate();
    frames.filter(|(_, frame)| frame.kind != FrameKind::Sound).collect()
}

#[test]
fn any_film_is_a_valid_table_of_its_rate_and_length_and_always_the_same() {
    for (parameters, table) in films() {
        assert_eq!(table.check(), Ok(()), "{parameters:?}");
        assert_eq!(generate(&parameters).as_ref(), Ok(&table));
        let pictures = pictures(&table);
        let count = (parameters.duration.as_secs_f64() * parameters.picture_rate).ceil();
        assert_eq!(pictures.len() as f64, count, "{parameters:?}");
        let bytes: u64 = pictures.iter().map(|(_, frame)| u64::from(frame.size)).sum();
        let wanted =
            count / parameters.picture_rate * parameters.rate.as_bits_per_sec() as f64 / 8.0;
        // At most a byte a second for rounding; the last second, and frames of at least a byte.
        assert!(
            (bytes as f64 - wanted).abs() <= 10.0 + wanted * 1e-3,
            "{bytes} of {wanted}: {parameters:?}"
        );
        if let Some(sound) = parameters.sound {
            let frames = table.frames.iter().filter(|frame| frame.kind == FrameKind::Sound);
            let (count, bytes) =
                frames.fold((0u64, 0), |(n, sum), one| (n + 1, sum + u64::from(one.size)));
            assert_eq!(count, (parameters.duration.as_nanos() * 48).div_ceil(1_024 * 1_000_000));
            assert_eq!(bytes, count * 1_024 * sound.rate.as_bits_per_sec() / 8 / 48_000);
        }
    }
}

#[test]
fn with_a_constant_rate_each_whole_second_has_as_many_bytes() {
    let mut seconds = 0;
    for (parameters, table) in films().filter(|(parameters, _)| parameters.is_constant) {
        let mut sums = std::collections::BTreeMap::new();
        for (_, frame) in pictures(&table) {
            *sums.entry(frame.made.as_nanos() / 1_000_000_000).or_insert(0) +=
                u64::from(frame.size);
        }
        sums.pop_last();
        seconds += sums.len();
        let wanted = parameters.rate.as_bits_per_sec() as f64 / 8.0;
        assert!(sums.values().all(|&sum| (sum as f64 - wanted).abs() <= 1.0), "{sums:?} {wanted}");
    }
    assert!(seconds > 300);
}

/// Kinds and dependencies of pictures, such as "K0 R0 R0,1 D0,2 D1,2".
fn chains(key_distance: u32, b_pictures: u32, count: u64) -> String {
    let parameters = GeneratorParameters {
        key_distance,
        b_pictures,
        sound: None,
        duration: Duration::from_millis(40 * count),
        ..GeneratorParameters::default()
    };
    let table = generate(&parameters).expect("valid parameters");
    let one = |frame: &Frame| {
        let numbers: Vec<String> = frame.depends_on.iter().map(u32::to_string).collect();
        format!("{}{}", &frame.kind.name()[..1], numbers.join(","))
    };
    table.frames.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn chains_are_those_of_x264_in_decoding_order() {
    assert_eq!(chains(3, 0, 7), "k r0 r1 k r3 r4 k");
    assert_eq!(chains(5, 1, 7), "k r0 d0,1 r1 d1,3 k r5");
    assert_eq!(chains(7, 2, 7), "k r0 r0,1 d1,2 r1 r1,4 d4,5");
    assert_eq!(chains(9, 3, 9), "k r0 r0,1 d0,2 d1,2 r1 r1,5 d1,6 d5,6");
    // The last group is shorter: it ends with a P picture.
    assert_eq!(chains(4, 3, 4), "k r0 r0,1 d1,2");
    assert_eq!(chains(3, 3, 3), "k r0 d0,1");
    assert_eq!(chains(1, 3, 3), "k k k");
}

#[test]
fn nothing_depends_on_a_disposable_picture_and_each_chain_ends_at_its_key() {
    for (_, table) in films() {
        let mut key = 0;
        for (number, frame) in pictures(&table) {
            if frame.kind == FrameKind::Key {
                key = number;
                assert!(frame.depends_on.is_empty());
            } else {
                assert!(!frame.depends_on.is_empty());
            }
            for &other in &frame.depends_on {
                let other = other as usize;
                assert!(other >= key, "{number} depends on {other}, before its key {key}");
                let kind = table.frames[other].kind;
                assert!(matches!(kind, FrameKind::Key | FrameKind::Reference));
            }
        }
    }
}

#[test]
fn sizes_have_the_ratios_and_the_variability_that_were_asked_for() {
    let parameters = GeneratorParameters {
        duration: Duration::from_secs(2_000),
        ..GeneratorParameters::default()
    };
    let table = generate(&parameters).expect("valid parameters");
    let of = |kind| {
        let sizes = table.frames.iter().filter(|frame| frame.kind == kind);
        let sizes: Vec<f64> = sizes.map(|frame| f64::from(frame.size)).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let square = sizes.iter().map(|size| (size - mean) * (size - mean)).sum::<f64>();
        (mean, (square / sizes.len() as f64).sqrt() / mean)
    };
    let ((key, of_key), (disposable, of_disposable)) =
        (of(FrameKind::Key), of(FrameKind::Disposable));
    assert!((key / disposable / 16.3 - 1.0).abs() < 0.05, "{}", key / disposable);
    assert!((of_key - 0.5).abs() < 0.05 && (of_disposable - 0.5).abs() < 0.05, "{of_key}");
}

#[test]
fn what_is_out_of_range_is_an_error() {
    let valid = GeneratorParameters::default;
    let sizes = SizeRatios { reference: f64::NAN, ..SizeRatios::default() };
    let silent = GeneratedSound { sample_rate: 0, ..GeneratedSound::default() };
    let slow = GeneratedSound { rate: Rate::from_bits_per_sec(100), ..GeneratedSound::default() };
    let cases = [
        (GeneratorParameters { picture_rate: 0.0, ..valid() }, GeneratorError::PictureRate),
        (GeneratorParameters { picture_rate: f64::NAN, ..valid() }, GeneratorError::PictureRate),
        (GeneratorParameters { key_distance: 0, ..valid() }, GeneratorError::KeyDistance),
        (GeneratorParameters { b_pictures: 4, ..valid() }, GeneratorError::BPictures),
        (GeneratorParameters { sizes, ..valid() }, GeneratorError::Sizes),
        (GeneratorParameters { variability: -0.1, ..valid() }, GeneratorError::Variability),
        (GeneratorParameters { sound: Some(silent), ..valid() }, GeneratorError::Sound),
        (GeneratorParameters { sound: Some(slow), ..valid() }, GeneratorError::TooSmall),
        (GeneratorParameters { duration: Duration::ZERO, ..valid() }, GeneratorError::Duration),
        (GeneratorParameters { duration: Duration::MAX, ..valid() }, GeneratorError::Duration),
        (
            GeneratorParameters { duration: Duration::from_secs(9_000_000), ..valid() },
            GeneratorError::TooManyFrames,
        ),
        (
            GeneratorParameters { rate: Rate::from_bits_per_sec(1_000), ..valid() },
            GeneratorError::TooSmall,
        ),
        (
            GeneratorParameters { rate: Rate::from_bits_per_sec(u64::MAX), ..valid() },
            GeneratorError::TooLarge,
        ),
    ];
    for (parameters, error) in cases {
        assert_eq!(generate(&parameters), Err(error), "{parameters:?}");
    }
}
