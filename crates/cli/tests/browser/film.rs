//! A film whose pictures have their number painted into them, and the script that reads it from the canvas.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ontempo_media::ts::{PACKET, header};
use ontempo_testing::{Av1Framing, av1_transport_stream};

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

/// What a film is coded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coded {
    H264AndAac,
    /// With so many channels.
    H264AndOpus(u8),
    Hevc,
    Av1,
}

/// 20 s of pictures and sound in `film.ts`; `None`, and reported, where ffmpeg has no such encoder.
pub(crate) fn film(place: &Place, coded: Coded) -> Option<()> {
    let mut filter = "drawbox=x=0:y=148:w=320:h=32:color=black:t=fill".to_owned();
    for field in 0..10 {
        let (left, unit) = (field * 32, 1 << field);
        filter += &format!(
            ",drawbox=x={left}:y=148:w=32:h=32:color=white:t=fill:enable='mod(floor(n/{unit}),2)'"
        );
    }
    let sources = "-loglevel error -f lavfi -i testsrc2=size=320x180:rate=25 \
                   -f lavfi -i sine=500:sample_rate=48000 -t 20 -vf";
    let h264 = "-c:v libx264 -preset veryfast -tune zerolatency -b:v 1M";
    let ts = "-pes_payload_size 0 -f mpegts film.ts";
    let coding = match coded {
        Coded::H264AndAac => format!("{h264} -c:a aac -b:a 96k {ts}"),
        Coded::H264AndOpus(channels) => format!("{h264} -c:a libopus -ac {channels} {ts}"),
        Coded::Hevc => format!("-c:v libx265 -preset ultrafast -tune zerolatency -an {ts}"),
        // With frames that are not shown themselves.
        Coded::Av1 => "-c:v libsvtav1 -preset 10 -b:v 1M -an -f ivf film.ivf".to_owned(),
    };
    let made = Command::new("ffmpeg")
        .args(sources.split_whitespace())
        .arg(filter)
        .args("-g 50 -pix_fmt yuv420p".split_whitespace())
        .args(coding.split_whitespace())
        .current_dir(&place.0)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|made| made.success()) {
        ontempo_testing::record_skip(&format!("no ffmpeg that makes {coded:?}"));
        return None;
    }
    if coded == Coded::Av1 {
        let ivf = fs::read(place.path("film.ivf")).expect("the film");
        let stream = av1_transport_stream(&ivf, Av1Framing::StartCodes);
        fs::write(place.path("film.ts"), stream).expect("written");
    }
    Some(())
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

/// Sends the packets of the film to a port of the loopback, each picture when its clock reference says.
pub(crate) fn play_packets(place: &Place, port: u16) {
    let film = fs::read(place.path("film.ts")).expect("the film");
    // Nothing is sent before somebody listens.
    let local = format!(":{port:04X} ");
    let patience = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string("/proc/net/udp").expect("sockets").contains(&local) {
        assert!(Instant::now() < patience, "nobody listens at {port}");
        sleep(Duration::from_millis(20));
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let begun = Instant::now();
    let mut first = None;
    let packets: Vec<&[u8]> = film.chunks(PACKET).collect();
    let has_clock = |packet: &[u8]| header(packet).is_some_and(|header| header.pcr.is_some());
    for picture in packets.chunk_by(|_, next| !has_clock(next)) {
        if let Some(clock) = header(picture[0]).and_then(|header| header.pcr) {
            let first = *first.get_or_insert(clock);
            let due = Duration::from_secs_f64((clock - first) as f64 / 27e6);
            sleep(due.saturating_sub(begun.elapsed()));
        }
        for datagram in picture.chunks(7) {
            socket.send_to(&datagram.concat(), ("127.0.0.1", port)).expect("sent");
        }
    }
}

/// Notes, after each painting, how long ago the picture was made, by the time that is painted into it: 16 fields, the
/// milliseconds since 1970 modulo 65,536.
pub(crate) const GLASS: &str = r#"
window.ages = [];
let count = 0;
(function look() {
    const canvas = document.getElementById("picture");
    if (canvas.width === 1280 && count !== ontempo.pictures.figures.painted) {
        count = ontempo.pictures.figures.painted;
        const now = performance.timeOrigin + performance.now();
        const row = canvas.getContext("2d").getImageData(0, 40, 1280, 1).data;
        let made = 0;
        for (let field = 0; field < 16; field += 1) {
            if (row[(field * 80 + 40) * 4] > 128) made |= 1 << field;
        }
        window.ages.push((now - made) % 65536);
    }
    requestAnimationFrame(look);
})();
true
"#;

/// For `span`, 25 pictures a second of 1280 x 720 with the time at which each is made, encoded by x264 without delay
/// and sent to a port of the loopback.
pub(crate) fn live(port: u16, span: Duration) -> Killed {
    const WIDTH: usize = 1280;
    const HEIGHT: usize = 720;
    let arguments = format!(
        "-loglevel error -f rawvideo -pix_fmt yuv420p -video_size {WIDTH}x{HEIGHT} -framerate 25 \
         -probesize 32 -i - -c:v libx264 -preset ultrafast -tune zerolatency -b:v 2M -g 50 \
         -flush_packets 1 -f mpegts udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let mut command = Command::new("ffmpeg");
    command.args(arguments.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut ffmpeg = Killed(command.spawn().expect("ffmpeg"));
    let mut to = ffmpeg.0.stdin.take().expect("its input");
    spawn(move || {
        let begun = Instant::now();
        let mut picture = vec![128u8; WIDTH * HEIGHT * 3 / 2];
        for number in 0.. {
            let due = Duration::from_millis(40 * number);
            if due > span {
                return;
            }
            sleep(due.saturating_sub(begun.elapsed()));
            // Something that moves.
            for (place, byte) in picture[WIDTH * 100..WIDTH * HEIGHT].iter_mut().enumerate() {
                *byte = ((place % WIDTH + place / WIDTH + 4 * number as usize) / 4 % 200) as u8;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis();
            for (place, byte) in picture[..WIDTH * 80].iter_mut().enumerate() {
                *byte = if now >> (place % WIDTH / 80) & 1 == 1 { 235 } else { 16 };
            }
            if to.write_all(&picture).is_err() {
                return;
            }
        }
    });
    ffmpeg
}
