//! `ontempo media`: films that are made up, and films by way of ffmpeg.

mod common;

use std::fs;
use std::process::Command;

use common::{Place, Ran};
use ontempo_foundation::Rate;
use ontempo_media::{Film, FrameKind, FrameTable, GeneratorParameters, Sending, generate};

fn place(test: &str) -> Place {
    Place::new(test, "")
}

/// A film of 2 s with sound.
fn encode(place: &Place, name: &str, options: &str) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25"]);
    command.args(["-f", "lavfi", "-i", "sine=sample_rate=48000", "-t", "2", "-threads", "1"]);
    command.args(options.split_whitespace()).arg(name).current_dir(&place.0);
    assert!(command.status().is_ok_and(|status| status.success()), "{options}");
}

fn table(place: &Place, name: &str) -> FrameTable {
    let text = fs::read_to_string(place.path(name)).expect("a table");
    FrameTable::read_csv(&text).expect("a valid table")
}

#[test]
fn a_film_that_is_made_up_is_written_and_summed_up() {
    let place = place("media-made");
    let words = ["media", "--generate", "rate=2M,key=10,b=1,duration=4 s,cbr", "--frames", "a.csv"];
    let text = place.run(&words).succeeds().out.clone();
    for line in [
        "film          h264, 4.000 s",
        "  key         10, mean",
        "key distance  0.400 s (10.0 pictures)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = place.run(&[&words[..], &["--json"]].concat()).json();
    assert_eq!(json["pictures"]["count"], 100);
    assert_eq!(json["pictures"]["rate_bps"], 2_000_000);
    assert_eq!(json["stuffing_share"], serde_json::Value::Null);
    assert_eq!(table(&place, "a.csv").frames.len(), 100 + 188);
    place.run(&["media", "--generate", "--frames", "b.csv"]).succeeds();
    let made = generate(&GeneratorParameters::default()).expect("a film");
    assert_eq!(table(&place, "b.csv"), made);
}

#[test]
fn a_film_in_another_container_has_the_frames_of_its_transport_stream() {
    if !ontempo_testing::require_programs(&["ffmpeg"]) {
        return;
    }
    let place = place("media-film");
    encode(&place, "film.mp4", "-c:v libx264 -bf 2 -g 20 -c:a aac");
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i", "film.mp4", "-c", "copy", "-muxrate", "3M", "film.ts"]);
    assert!(command.current_dir(&place.0).status().is_ok_and(|status| status.success()));
    let read = |name: &str| {
        let json = place.run(&["media", name, "--frames", "film.csv", "--json"]).json();
        (json, table(&place, "film.csv"))
    };
    let ((of_mp4, mp4), (of_ts, ts)) = (read("film.mp4"), read("film.ts"));
    let frames = |table: &FrameTable, is_sound: bool| -> Vec<(FrameKind, u32, usize)> {
        let frames =
            table.frames.iter().filter(|frame| (frame.kind == FrameKind::Sound) == is_sound);
        frames.map(|frame| (frame.kind, frame.size, frame.depends_on.len())).collect()
    };
    for is_sound in [false, true] {
        assert_eq!(frames(&mp4, is_sound), frames(&ts, is_sound));
    }
    assert_eq!(of_mp4["pictures"]["key"], of_ts["pictures"]["key"]);
    assert_eq!(of_mp4["key_distance"]["longest_pictures"], 20.0);
    assert_eq!(of_mp4["stuffing_share"], serde_json::Value::Null);
    let share = of_ts["stuffing_share"].as_f64().expect("a share");
    assert!((0.1..0.95).contains(&share), "{share}");
}

#[test]
fn what_is_no_film_is_an_error_that_says_why() {
    let place = place("media-errors");
    place.run(&["media", "no.ts"]).fails(2, &["no.ts: No such file"]);
    place.run(&["media", "."]).fails(2, &["a folder, not a film"]);
    fs::write(place.path("empty.ts"), "").expect("written");
    place.run(&["media", "empty.ts"]).fails(2, &["the file is empty"]);
    fs::write(place.path("text.ts"), "a text").expect("written");
    place.run(&["media", "text.ts"]).fails(
        2,
        &["text.ts: no transport stream: from byte 0 on", "0x47", "192 with 4 bytes before each"],
    );
    place.run(&["media", "--generate", "b=9"]).fails(2, &["--generate: the B pictures", "0 to 3"]);
    place.run(&["media", "--generate", "speed=9"]).fails(2, &["--generate: speed: it is none of"]);
    place.run(&["media"]).fails(2, &["FILE"]);
    place
        .run(&["media", "--generate", "--frames", "no/a.csv"])
        .fails(3, &["--frames no/a.csv: cannot be created"]);
    // Without ffmpeg on the path.
    fs::write(place.path("film.mp4"), "a film").expect("written");
    let mut command = place.command(&["media", "film.mp4"]);
    let ran = Ran::of(command.env("PATH", &place.0).output().expect("the program starts"));
    ran.fails(3, &["ffmpeg, which reads other films, is missing", "apt-get install ffmpeg"]);
}

#[test]
fn films_that_are_cut_or_have_no_pictures_say_so() {
    if !ontempo_testing::require_programs(&["ffmpeg"]) {
        return;
    }
    let place = place("media-cut");
    encode(&place, "film.mp4", "-c:v libx264 -c:a aac");
    encode(&place, "film.ts", "-c:v libx264 -c:a aac");
    encode(&place, "sound.m4a", "-vn -c:a aac");
    for name in ["film.mp4", "film.ts"] {
        let bytes = fs::read(place.path(name)).expect("the film");
        fs::write(place.path(&format!("cut-{name}")), &bytes[..bytes.len() / 376 * 188 + 100])
            .expect("written");
    }
    place.run(&["media", "cut-film.mp4"]).fails(2, &["no film that ffmpeg can read", "moov"]);
    let cut = place.run(&["media", "cut-film.ts", "--json"]);
    let told = cut.succeeds().json()["not_told"].to_string();
    assert!(told.contains("a packet that is cut at the end, left out: 100"), "{told}");
    place.run(&["media", "sound.m4a"]).fails(2, &["no pictures: none of the streams"]);
}

#[test]
fn packets_of_192_or_204_bytes_in_a_ts_are_read_directly_and_a_cut_keeps_the_stuffing() {
    let place = place("media-packets");
    let made = generate(&GeneratorParameters::default()).expect("a film");
    let rate = Rate::from_bits_per_sec(6_000_000);
    let film = Film::new(made, &Sending::Paced { rate, stuffing: true });
    let mut plain = Vec::new();
    (0..)
        .map_while(|number| film.datagram(number).filter(|one| one.at < film.period()))
        .for_each(|sent| film.write(&sent, &mut plain));
    fs::write(place.path("plain.ts"), &plain).expect("written");
    let read = |name: &str| place.run(&["media", name, "--json"]).json();
    let whole = read("plain.ts");
    for (head, tail) in [(4, 0), (0, 16)] {
        let other = |packet: &[u8]| [&vec![0x11; head], packet, &vec![0x22; tail]].concat();
        let bytes: Vec<u8> = plain.chunks(188).flat_map(other).collect();
        fs::write(place.path("other.ts"), &bytes).expect("written");
        assert_eq!(read("other.ts"), whole, "{head} {tail}");
    }
    fs::write(place.path("cut.ts"), [&plain[..9_000], &plain[9_010..]].concat()).expect("written");
    let share = |json: &serde_json::Value| json["stuffing_share"].as_f64().expect("a share");
    let (before, after) = (share(&whole), share(&read("cut.ts")));
    assert!(before > 0.05 && (after - before).abs() < 0.001, "{before} {after}");
}
