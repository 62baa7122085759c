//! What is written is read the same; what is wrong is named with its line.

use ontempo_foundation::RandomStream;

use super::*;

const HEAD: &str = "time_s,type,size_bytes,depends_on\n";

/// A number from `low` to below `high`.
fn below(random: &mut RandomStream, low: u64, high: u64) -> u64 {
    low + random.next_u64() % (high - low)
}

/// A table of up to 60 frames.
fn drawn(random: &mut RandomStream) -> FrameTable {
    let kinds = [FrameKind::Key, FrameKind::Reference, FrameKind::Disposable, FrameKind::Sound];
    let codecs = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Unknown];
    let mut made = Duration::ZERO;
    let mut frames: Vec<Frame> = Vec::new();
    for number in 0..below(random, 1, 60) {
        made = made.saturating_add(Duration::from_nanos(below(random, 0, 3_000_000_000)));
        let on = below(random, 0, 20).min(MAX_FRAME_DEPENDENCIES as u64).min(number);
        let mut depends_on: Vec<u32> = (0..on).map(|_| below(random, 0, number) as u32).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        let kind = if number == 0 { FrameKind::Key } else { kinds[below(random, 0, 4) as usize] };
        let size = below(random, 1, u64::from(MAX_FRAME_SIZE) + 1) as u32;
        frames.push(Frame { made, kind, size, depends_on });
    }
    let period = made.saturating_add(Duration::from_nanos(below(random, 1, 1_000_000_000)));
    FrameTable { codec: codecs[below(random, 0, 4) as usize], frames, period }
}

#[test]
fn what_is_written_is_read_the_same() {
    let mut random = RandomStream::new(1, "tables of frames");
    for _ in 0..500 {
        let table = drawn(&mut random);
        assert_eq!(table.check(), Ok(()));
        assert_eq!(FrameTable::read_csv(&table.write_csv()), Ok(table));
    }
}

#[test]
fn a_damaged_table_is_a_valid_one_or_an_error_with_a_line() {
    let mut random = RandomStream::new(2, "damaged tables of frames");
    let mut read = 0;
    for _ in 0..3_000 {
        let mut bytes = drawn(&mut random).write_csv().into_bytes();
        for _ in 0..below(&mut random, 1, 4) {
            let at = below(&mut random, 0, bytes.len() as u64) as usize;
            match below(&mut random, 0, 3) {
                0 => bytes[at] = below(&mut random, 0, 256) as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, b"0123456789,. #\n-e"[below(&mut random, 0, 17) as usize]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match FrameTable::read_csv(&text) {
            Ok(table) => {
                assert_eq!(table.check(), Ok(()));
                assert_eq!(FrameTable::read_csv(&table.write_csv()), Ok(table));
                read += 1;
            }
            Err(error) => assert!((1..=text.lines().count().max(1)).contains(&error.line)),
        }
    }
    assert!((300..2_700).contains(&read), "{read} of 3,000 are still tables");
}

#[test]
fn columns_come_in_any_order_and_comments_are_skipped_or_read() {
    let text = "# from a camera\r\n# period_s 20\r\n# codec hevc\r\n\r\n\
                size_bytes, depends_on ,time_s,type\r\n100,,0,key\r\n50,0,0.04,reference\r\n\
                # codec is said above\r\n9,1 0,1e-1,disposable\r\n7,,0.1,sound\r\n";
    let table = FrameTable::read_csv(text).expect("a table");
    assert_eq!((table.codec, table.period), (Codec::Hevc, Duration::from_secs(20)));
    let frames: Vec<_> = table
        .frames
        .iter()
        .map(|one| (one.made.as_nanos() / 1_000_000, one.kind, one.size, one.depends_on.clone()))
        .collect();
    let expected = vec![
        (0, FrameKind::Key, 100, vec![]),
        (40, FrameKind::Reference, 50, vec![0]),
        (100, FrameKind::Disposable, 9, vec![0, 1]),
        (100, FrameKind::Sound, 7, vec![]),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn a_film_that_does_not_say_ends_a_mean_distance_after_its_last_frame() {
    let read = |rows: &str| FrameTable::read_csv(&format!("{HEAD}{rows}")).expect("a table");
    let table = read("0,key,9,\n0.02,reference,9,0\n0.08,reference,9,1\n0.1,sound,9,\n");
    assert_eq!((table.codec, table.period), (Codec::Unknown, Duration::from_millis(140)));
    assert_eq!(read("3,key,9,\n").period, Duration::from_millis(3_040));
    assert_eq!(read("0,key,9,\n0,key,9,\n").period, Duration::from_millis(40));
}

#[test]
fn an_error_names_its_line_and_what_would_be_right() {
    let cases: [(&str, usize, &str); 18] = [
        ("", 1, "must name the columns time_s, type, size_bytes, depends_on"),
        ("time_s,type\n", 1, "must name the columns"),
        ("time_s,type,size_bytes,depends_on,more\n", 1, "must name the columns"),
        ("time_s,type,size_bytes,size_bytes\n", 1, "must name the columns"),
        ("@0,sound,9,\n", 2, "a film has pictures"),
        ("@0,key,0,\n", 2, "a size is 1 to 16777216 bytes"),
        ("@0,key,16777217,\n", 2, "a size is 1 to 16777216 bytes"),
        ("@0,key,9000000000,\n", 2, "a size is 1 to 16777216 bytes"),
        ("@0,key,x,\n", 2, "`x` is no whole number"),
        ("@0.04,key,9,\n0.03,reference,9,0\n", 3, "0.030000000 s is before"),
        ("@0,key,9,\n0,reference,9,1\n", 3, "frame 1 depends on frame 1"),
        ("@0,key,9,\n0,reference,9,7\n", 3, "frame 1 depends on frame 7"),
        ("@0,key,9,-1\n", 2, "counted from 0"),
        ("@0,keys,9,\n", 2, "`keys` is none of key, reference, disposable, sound"),
        ("@-1,key,9,\n", 2, "no number of seconds"),
        ("@0,key,9\n", 2, "the columns are 4, here are 3"),
        ("# codec vp9\n@0,key,9,\n", 1, "`vp9` is none of h264, hevc, av1, unknown"),
        ("# period_s 1\n@0,key,9,\n1,key,9,\n", 1, "must be after the last frame"),
    ];
    for (text, line, words) in cases {
        let error = FrameTable::read_csv(&text.replace('@', HEAD)).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    let many: String = (0..17).map(|number| format!("{number},key,9,\n")).collect();
    let all: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let text = format!("{HEAD}{many}17,reference,9,{}\n", all.join(" "));
    let error = FrameTable::read_csv(&text).expect_err("too many dependencies");
    assert!(error.line == 19 && error.to_string().contains("at most 16"), "{error}");
}

#[test]
fn a_table_that_is_too_long_is_refused_at_the_first_line_too_many() {
    let text = format!("{HEAD}{}", "0,key,1,\n".repeat(MAX_FRAMES + 1));
    let error = FrameTable::read_csv(&text).expect_err("too many frames");
    assert_eq!(error.line, MAX_FRAMES + 2);
    assert!(error.to_string().contains("at most 4194304 frames"), "{error}");
}
