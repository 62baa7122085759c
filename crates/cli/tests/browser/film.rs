//! A film whose pictures have their number painted into them, and the script that reads it from the canvas.

use std::process::{Command, Stdio};

use crate::common::{Killed, Place};

/// Pictures of the film: 20 s.
pub(crate) const FRAMES: u64 = 500;

/// Notes, after each painting, the number that the picture on the canvas has, and when: ten fields, black or white.
pub(crate) const LOOK: &str = r#"
window.seen = new Map();
let count = 0;
(function look() {
    const canvas = document.getElementById("picture");
    if (canvas.width === 320 && count !== ontempo.pictures.figures.painted) {
        count = ontempo.pictures.figures.painted;
        const row = canvas.getContext("2d").getImageData(0, 164, 320, 1).data;
        let number = 0;
        for (let field = 0; field < 10; field += 1) {
            if (row[(field * 32 + 16) * 4] > 128) number |= 1 << field;
        }
        if (!window.seen.has(number)) window.seen.set(number, performance.now());
    }
    requestAnimationFrame(look);
})();
true
"#;

/// 20 s of pictures and sound in `film.ts`; `None`, and reported, where ffmpeg has no H.264.
pub(crate) fn film(place: &Place) -> Option<()> {
    let mut filter = "drawbox=x=0:y=148:w=320:h=32:color=black:t=fill".to_owned();
    for field in 0..10 {
        let (left, unit) = (field * 32, 1 << field);
        filter += &format!(
            ",drawbox=x={left}:y=148:w=32:h=32:color=white:t=fill:enable='mod(floor(n/{unit}),2)'"
        );
    }
    let sources = "-loglevel error -f lavfi -i testsrc2=size=320x180:rate=25 \
                   -f lavfi -i sine=500:sample_rate=48000 -t 20 -vf";
    let coding = "-c:v libx264 -preset veryfast -tune zerolatency -b:v 1M -g 50 -pix_fmt yuv420p \
                  -c:a aac -b:a 96k -pes_payload_size 0 -f mpegts film.ts";
    let made = Command::new("ffmpeg")
        .args(sources.split_whitespace())
        .arg(filter)
        .args(coding.split_whitespace())
        .current_dir(&place.0)
        .status();
    if made.is_ok_and(|made| made.success()) {
        return Some(());
    }
    ontempo_testing::record_skip("no ffmpeg that makes H.264");
    None
}

/// Plays the film in real time to a port of the loopback.
pub(crate) fn play(place: &Place, port: u16) -> Killed {
    let arguments = format!(
        "-loglevel error -re -i film.ts -c copy -pes_payload_size 0 -f mpegts \
         udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let mut command = Command::new("ffmpeg");
    command.args(arguments.split_whitespace()).current_dir(&place.0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Killed(command.spawn().expect("ffmpeg"))
}
