//! When the page shows pictures and plays sound: its own classes, in a time and with decoders of the tests.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::common::Place;
use crate::{PATH, Served, alone, says, wait_for};

/// What is seen and heard, last, of a stream: `fps` pictures a second, and `sound` that comes so many ms after its time.
/// From `hidden[0]` to `hidden[1]` the page is not seen, from `still[0]` to `still[1]` nothing is painted, and what comes between
/// `stall[0]` and `stall[1]` comes at its end.
const SIMULATED: &str = r#"
(async ({ fps = 0, sound = null, hidden = [0, 0], still = [0, 0], stall = [0, 0], until }) => {
    const { Clock, Pictures } = await import("/playout.js");
    const { Sound } = await import("/sound.js");
    let [now, timers, paints, coded] = [0, [], [], []];
    const isIn = ([from, to]) => now >= from && now < to;
    class Chunk {
        constructor(told) { Object.assign(this, told); }
    }
    // What it gets comes out after 4 ms.
    class Decoder {
        constructor({ output }) { Object.assign(this, { output, state: "unconfigured", decodeQueueSize: 0 }); }
        static isConfigSupported() { return Promise.resolve({ supported: true }); }
        configure() { this.state = "configured"; }
        close() { this.state = "closed"; }
        decode({ timestamp }) {
            this.decodeQueueSize += 1;
            coded.push({ at: now + 4, decoder: this, timestamp });
        }
    }
    const replaced = {
        setInterval: (call, every) => timers.push({ call, every, next: every }),
        requestAnimationFrame: (call) => paints.push(call),
        VideoDecoder: Decoder, AudioDecoder: Decoder, EncodedVideoChunk: Chunk, EncodedAudioChunk: Chunk,
    };
    const kept = Object.keys(replaced).map((name) => [name, window[name]]);
    Object.assign(window, replaced);
    performance.now = () => now;
    Object.defineProperty(document, "hidden", { configurable: true, get: () => isIn(hidden) });
    try {
        const clock = new Clock();
        const canvas = { getContext: () => ({ drawImage() {} }) };
        const pictures = new Pictures(canvas, clock, () => {});
        const player = new Sound(clock, () => {});
        if (sound !== null) {
            clock.hasSound = true;
            player.context = {
                state: "running",
                get currentTime() { return now / 1000; },
                getOutputTimestamp: () => ({ contextTime: now / 1000, performanceTime: now }),
                createBuffer: () => ({ getChannelData: () => null }),
                createBufferSource: () => ({ playbackRate: {}, connect() {}, start() {} }),
            };
        }
        // The stream's clock is far from that of the page.
        const frame = (number, at, told) => ({
            number, previous: Math.max(0, number - 1), shown: 9e7 + at, due: at, timeline: 0, isKey: true, ...told });
        const video = Uint8Array.from([0, 0, 1, 0x67, 0x64, 0, 0x0c]);
        const audio = Uint8Array.from([0xff, 0xf1, 0x4c, 0x80, 0, 0xff, 0xfc]);
        const numbers = { picture: 0, sound: 0 };
        const take = (message) => {
            clock.heard(message.due, now);
            clock.note(message, now);
            (message.isSound ? player : pictures).take(message);
        };
        for (; now < until; now += 1) {
            while (!isIn(stall) && fps > 0 && numbers.picture * 1000 / fps <= now) {
                const number = numbers.picture;
                numbers.picture += 1;
                take(frame(number, number * 1000 / fps, { isKey: number % 50 === 0, coding: 0x1b, data: video }));
            }
            while (!isIn(stall) && sound !== null && numbers.sound * 1024 / 48 + sound <= now) {
                const number = numbers.sound;
                numbers.sound += 1;
                take(frame(number, number * 1024 / 48, { isSound: true, coding: 0x0f, data: audio }));
            }
            while (coded.length > 0 && coded[0].at <= now) {
                const { decoder, timestamp } = coded.shift();
                decoder.decodeQueueSize -= 1;
                const size = { displayWidth: 320, displayHeight: 180 };
                const samples = { numberOfFrames: 1024, numberOfChannels: 2, sampleRate: 48000 };
                if (decoder.state === "configured") decoder.output({ timestamp, ...size, ...samples, copyTo() {}, close() {} });
            }
            for (const timer of timers.filter((one) => one.next <= now)) {
                timer.call();
                timer.next = now + Math.max(timer.every, isIn(hidden) ? 1000 : 0);
            }
            if (now % 16 === 0 && !isIn(hidden) && !isIn(still)) paints.splice(0).forEach((call) => call());
        }
        const { at, latency } = pictures.history.at(-1) ?? {};
        return { isGoing: now - at < 100, latency, played: player.figures.played, pending: pictures.pending.length };
    } finally {
        kept.forEach(([name, value]) => { window[name] = value; });
        delete performance.now;
        delete document.hidden;
    }
})
"#;

/// The page without a stream.
fn page(place: &Place) -> Option<(Browser, Served)> {
    if !ontempo_testing::require_programs(&["chromium"]) {
        return None;
    }
    let served = Served::start(place, "127.0.0.1:0", "127.0.0.1:0", &[]);
    let mut browser = Browser::start(place);
    browser.go(&served.link);
    wait_for(&mut browser, &says("Waiting for a sender"));
    Some((browser, served))
}

fn simulated(browser: &mut Browser, options: &Value) -> Value {
    browser.value(&format!("{SIMULATED}({options})"))
}

/// Whether pictures go on, with a latency below so many ms.
fn is_painted_within(told: &Value, latency: f64) -> bool {
    told["isGoing"] == true && told["latency"].as_f64() < Some(latency)
}

#[test]
fn a_page_that_was_hidden_shows_the_stream_as_early_as_before() {
    let _alone = alone();
    let place = Place::new("browser-hidden", PATH);
    let Some((mut browser, _served)) = page(&place) else { return };
    // The sound is late, so that pictures wait for it.
    for fps in [25, 60] {
        for away in ["hidden", "still"] {
            let options =
                json!({ "fps": fps, "sound": 300, away: [5_000, 25_000], "until": 32_000 });
            let told = simulated(&mut browser, &options);
            assert!(is_painted_within(&told, 350.0), "{options}: {told}");
        }
    }
    // Meanwhile nothing piles up.
    let options = json!({ "fps": 60, "sound": 300, "hidden": [5_000, 25_000], "until": 25_000 });
    let told = simulated(&mut browser, &options);
    assert!(told["pending"].as_u64() < Some(60), "{told}");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn what_came_late_after_a_stall_is_made_up_for() {
    let _alone = alone();
    let place = Place::new("browser-stall", PATH);
    let Some((mut browser, _served)) = page(&place) else { return };
    for (fps, sound) in [(25, json!(null)), (60, json!(null)), (25, json!(0)), (60, json!(180))] {
        let options =
            json!({ "fps": fps, "sound": sound, "stall": [5_000, 8_000], "until": 18_000 });
        let told = simulated(&mut browser, &options);
        let latency = 60.0 + sound.as_f64().unwrap_or_default();
        assert!(is_painted_within(&told, latency), "{options}: {told}");
    }
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_stream_of_sound_alone_is_heard_and_waits_for_no_key_picture() {
    let _alone = alone();
    let place = Place::new("browser-sound", PATH);
    let Some((mut browser, _served)) = page(&place) else { return };
    let told = simulated(&mut browser, &json!({ "sound": 0, "until": 5_000 }));
    assert!(told["played"].as_u64() > Some(200), "{told}");
    let mut says = |streams: Value| {
        let document = json!({
            "event": "stream", "latency_s": 0.1, "streams": streams, "is_foreign": false,
        });
        browser.value(&format!(
            "ontempo.onMessage({{ sent: 0, document: {document} }}, performance.now(), 0);
             document.getElementById('message').textContent"
        ))
    };
    let [sound, pictures] = [(true, 0x0f), (false, 0x1b)]
        .map(|(is_sound, stream_type)| json!({ "sound": is_sound, "stream_type": stream_type }));
    assert_eq!(says(json!([])), "Waiting for the stream …");
    assert_eq!(says(json!([pictures, sound])), "Waiting for a key picture …");
    assert_eq!(says(json!([sound])), "The stream has only sound.");
    assert_eq!(browser.errors(), [""; 0]);
}

#[test]
fn a_late_picture_of_a_timeline_that_is_over_takes_nothing_from_the_next() {
    let _alone = alone();
    let place = Place::new("browser-timeline", PATH);
    let Some((mut browser, _served)) = page(&place) else { return };
    let last = browser.value(
        "(() => {
            const data = Uint8Array.from([0, 0, 1, 0x67, 0x64, 0, 0x0c]);
            const take = (timeline, number, isKey) => ontempo.onMessage({
                sent: 0, data, coding: 0x1b, isKey, timeline, number, previous: number - 1,
                shown: number * 40, due: number * 40 }, performance.now(), data.length);
            take(255, 5, true);
            take(0, 7, true);
            take(255, 6, false);
            return ontempo.pictures.last;
        })()",
    );
    assert_eq!(last, json!(7));
}
