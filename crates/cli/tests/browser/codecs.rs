//! What the page decodes, and what it says of the rest.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::common::{Killed, Place, free_port};
use crate::film::{Coded, film, play, play_packets};
use crate::{PATH, Served, alone, feed_packets, feed_played, says, send, wait_for, watch_well};

#[test]
fn a_film_in_av1_over_a_path_that_loses_packets_is_painted_whole_and_in_time() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-av1", PATH);
    if film(&place, Coded::Av1).is_some() {
        watch_well(&place, feed_packets);
    }
}

#[test]
fn sound_in_opus_is_heard_with_its_pictures() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-opus", PATH);
    if film(&place, Coded::H264AndOpus(2)).is_some() {
        watch_well(&place, feed_played);
    }
}

/// What has to go on for as long as a page is watched: server, sender and film.
type Running = (Served, Killed, Killed);

/// A page that shows what `feed` sends to a port of the loopback.
fn watch(place: &Place, feed: impl FnOnce(u16) -> Killed) -> (Browser, Running) {
    let served = Served::start(place, "127.0.0.1:0", "127.0.0.1:0", &[]);
    let mut browser = Browser::start(place);
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    let port = free_port();
    let sender = send(place, &served.program.local, port, &["--latency", "120 ms"]);
    let film = feed(port);
    (browser, (served, sender, film))
}

/// Sends what ffmpeg makes of these sources and codings, for 20 s.
fn make(port: u16, coding: &str) -> Killed {
    let arguments = format!(
        "-loglevel error -re -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=500 -t 20 \
         {coding} -f mpegts udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let mut command = Command::new("ffmpeg");
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    Killed(command.spawn().expect("ffmpeg"))
}

#[test]
fn six_channels_of_opus_are_decoded() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-surround", PATH);
    if film(&place, Coded::H264AndOpus(6)).is_none() {
        return;
    }
    let (mut browser, _running) = watch(&place, |port| play(&place, port));
    browser.value("ontempo.sound.turnOn().then(() => true)");
    wait_for(&mut browser, "ontempo.sound.figures.played > 100");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_browser_without_a_decoder_says_which_codec_it_lacks_and_what_to_send() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-hevc", PATH);
    if film(&place, Coded::Hevc).is_none() {
        return;
    }
    let (mut browser, _running) = watch(&place, |port| play(&place, port));
    // The name is that which x265 gives: main profile, level 2, progressive.
    wait_for(&mut browser, "ontempo.pictures.name === 'hev1.1.6.L60.90'");
    let is_there = browser.value(
        "VideoDecoder.isConfigSupported({ codec: 'hev1.1.6.L60.90' }).then(({ supported }) => supported)",
    );
    if is_there == json!(true) {
        wait_for(&mut browser, "ontempo.pictures.figures.painted > 50");
    } else {
        let sentence = "The stream's pictures are H.265 (hev1.1.6.L60.90), which this browser does \
                        not decode. Send H.264 or AV1 (ffmpeg: -c:v libx264), or watch it with a \
                        player: ontempo receive --to - … | ffplay -";
        wait_for(&mut browser, &says(sentence));
    }
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_codec_that_the_page_does_not_decode_is_named() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-codec", PATH);
    let (mut browser, running) = watch(&place, |port| make(port, "-c:v mpeg2video -an"));
    let sentence = "The stream's pictures are MPEG-2, which this page does not decode. Send H.264 or \
                    AV1 or H.265 (ffmpeg: -c:v libx264)";
    wait_for(&mut browser, &says(sentence));
    drop((browser, running));

    let place = Place::new("browser-silent", PATH);
    let coding = "-c:v libx264 -tune zerolatency -g 25 -pix_fmt yuv420p -c:a ac3";
    let (mut browser, _running) = watch(&place, |port| make(port, coding));
    wait_for(&mut browser, "ontempo.pictures.figures.painted > 20 && ontempo.sound.isThere");
    browser.value("ontempo.sound.turnOn().then(() => true)");
    let sentence = "The stream's sound is AC-3, which this page does not decode: it is silent. Send \
                    AAC or Opus (ffmpeg: -c:a aac)";
    wait_for(&mut browser, &says(sentence));
    // Without sound there is nothing to say; a second click turns it off.
    browser.value("document.getElementById('sound').click()");
    wait_for(&mut browser, "document.getElementById('message').textContent === ''");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_stream_that_does_not_say_how_it_is_coded_is_named_with_what_it_lacks() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-sets", PATH);
    let h264 = "-c:v libx264 -tune zerolatency -pix_fmt yuv420p -an";
    let coding = format!("{h264} -g 25 -bsf:v filter_units=remove_types=7-8");
    let (mut browser, running) = watch(&place, |port| make(port, &coding));
    let sentence = "The stream's key pictures are H.264 without parameter sets (SPS and PPS), which a \
                    decoder needs first. Let the encoder send them with each key picture (ffmpeg: \
                    -bsf:v dump_extra; GStreamer: h264parse config-interval=-1).";
    wait_for(&mut browser, &says(sentence));
    assert_eq!(browser.errors(), [""; 0]);
    drop((browser, running));

    // The first key picture is lost, and no other comes.
    let place = Place::new("browser-keys", PATH);
    let coding = format!("{h264} -g 100000 -bsf:v noise=drop=lt(n\\,2)");
    let (mut browser, _running) = watch(&place, |port| make(port, &coding));
    let sentence = "For 15 s no key picture has come, and decoding begins at one. Let the encoder make \
                    one every 2 s (ffmpeg: -g 50; x264enc: key-int-max=50).";
    wait_for(&mut browser, &says(sentence));
    assert_eq!(browser.errors(), [""; 0]);
}

/// Bytes of a packet of a transport stream.
const PACKET: usize = 188;

/// Writes the checksum (ISO/IEC 13818-1, annex A) of the section that this packet holds, behind a header of 4 bytes
/// and a pointer of 0, anew.
fn write_checksum(packet: &mut [u8]) {
    assert_eq!(packet[4], 0, "the section begins at once");
    let length = usize::from(u16::from_be_bytes([packet[6] & 0x0f, packet[7]]));
    let end = 8 + length - 4;
    let sum = ontempo_testing::section_checksum(&packet[5..end]);
    packet[end..end + 4].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn dual_mono_of_opus_is_silent_with_a_sentence() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium", "ffmpeg"]) {
        return;
    }
    let place = Place::new("browser-dual", PATH);
    if film(&place, Coded::H264AndOpus(2)).is_none() {
        return;
    }
    // ffmpeg makes none: the extension descriptor of Opus with its channel code, 2.
    let mut bytes = std::fs::read(place.path("film.ts")).expect("the film");
    let (stereo, mut changed) = ([0x7f, 2, 0x80, 2], 0);
    for at in 0..bytes.len() - stereo.len() {
        if bytes[at..].starts_with(&stereo) {
            bytes[at + 3] = 0;
            write_checksum(&mut bytes[at / PACKET * PACKET..][..PACKET]);
            changed += 1;
        }
    }
    assert!(changed > 10, "no tables of Opus");
    std::fs::write(place.path("film.ts"), bytes).expect("written");
    let served = Served::start(&place, "127.0.0.1:0", "127.0.0.1:0", &[]);
    let mut browser = Browser::start(&place);
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    let port = free_port();
    let _sender = send(&place, &served.program.local, port, &["--latency", "120 ms"]);
    std::thread::scope(|scope| {
        scope.spawn(|| play_packets(&place, port));
        wait_for(&mut browser, "ontempo.pictures.figures.painted > 20 && ontempo.sound.isThere");
        browser.value("ontempo.sound.turnOn().then(() => true)");
        let sentence = "The stream's sound is Opus in dual mono (two programs, one in each channel), which \
                        this page does not decode: it is silent. Send mono or stereo (ffmpeg: -c:a libopus \
                        -ac 2), or watch it with a player: ontempo receive --to - … | ffplay -";
        wait_for(&mut browser, &says(sentence));
        assert_eq!(browser.errors(), [""; 0]);
    });
}

/// Names of codecs from bytes: of encoders, and what the page makes of any others.
const NAMES: &str = r#"
(async () => {
    const { pictureCodec, soundCodec, refusal, unheard } = await import("/codecs.js");
    const bytes = (text) => Uint8Array.from(text.match(/../g), (one) => parseInt(one, 16));
    // What x264, x265 (10 bits), SVT-AV1, and libaom (10 bits; 4:4:4 at 5.1) write, and what ffprobe reads in it.
    const written = [
        [0x1b, "00000001" + "6764000cacd941", "avc1.64000c"],
        [0x24, "00000001" + "420101022000000300900000030000" + "03003ca00a", "hev1.2.4.L60.90"],
        [0x06, "0a0b000000043cfeccfbf98040", "av01.0.00M.08"],
        [0x06, "0a0b000000043cfeccdaf94040", "av01.0.00M.10"],
        [0x06, "0a0b2000006aefbfe1bddaf902", "av01.1.13M.08"],
    ];
    const misread = written.map(([coding, text, name]) => [pictureCodec(coding, bytes(text)), name]).filter(([one, other]) => one !== other);
    // Numbers that are the same in each run.
    let state = 1;
    const next = () => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return state >>> 24; };
    let wrong = 0;
    for (let round = 0; round < 20000; round += 1) {
        const some = Uint8Array.from({ length: next() % 48 }, next);
        // What begins well, so that more than the first look is taken.
        const begins = [[], [0, 0, 1, 0x67], [0, 0, 1, 0x42], [0x0a, next() % 64], [0xff, 0xf1], [next() % 10]][round % 6];
        some.set(begins.slice(0, some.length));
        for (const coding of [0x1b, 0x24, 0x06, 0x02]) {
            const name = pictureCodec(coding, some);
            const isName = name === null || /^(avc1|hev1|av01)(\.[0-9A-Za-z]+)+$/.test(name);
            if (coding === 0x02 ? name !== undefined : !isName) wrong += 1;
        }
        for (const coding of [0x0f, 0x06, 0x81]) {
            const told = soundCodec(coding, some);
            const isTold = told === null || (told?.config.numberOfChannels > 0 && told?.config.sampleRate > 0);
            if (coding === 0x81 ? told !== undefined : !isTold) wrong += 1;
            const why = unheard(coding, some);
            if (why !== null && (typeof why !== "string" || told)) wrong += 1;
        }
    }
    // AAC with a channel configuration of 0, Opus of the codes 0, 2 and 0x81.
    const silent = [[0x0f, "fff14c0000fffc00"], [0x06, "00fc00"], [0x06, "02fc00"], [0x06, "81fc00"]].map(
        ([coding, text]) => unheard(coding, bytes(text)));
    return { misread, wrong, silent, sentence: refusal(0x99, true, undefined) };
})()
"#;

#[test]
fn no_bytes_of_a_stream_make_the_page_fail() {
    let _alone = alone();
    if !ontempo_testing::require_programs(&["chromium"]) {
        return;
    }
    let place = Place::new("browser-names", PATH);
    let served = Served::start(&place, "127.0.0.1:0", "127.0.0.1:0", &[]);
    let mut browser = Browser::start(&place);
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    let told: Value = browser.value(NAMES);
    assert_eq!(told["misread"], json!([]));
    assert_eq!(told["wrong"], json!(0));
    let sentence = told["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("sound is of type 0x99, which this page"), "{sentence}");
    let silent = ["(channel configuration 0)", "Opus in dual mono", "", "(channel code 0x81)"];
    for (place, expected) in silent.into_iter().enumerate() {
        let said = told["silent"][place].as_str().unwrap_or_default();
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
    }
    assert_eq!(browser.errors(), [""; 0]);
}
