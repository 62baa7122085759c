//! From glass to glass: how long a picture takes from its source to the screen.
//!
//! A number is painted into each picture where it is made, as 16 blocks of black and white, and read where it
//! would be shown: between lie x264enc, `ontemposink`, the loopback, `ontemposrc` and the decoder. With `sync`
//! the screen waits until a picture is due, as GStreamer's do where nothing else is said; without, it shows each
//! at once. Both pipelines run in this program; a real screen and camera add their own.
//!
//! With `ts` the pictures go as MPEG-TS, without as they are.
//!
//! Usage: glass [PICTURES [LATENCY-MS [sync] [ts]]]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gstreamer as gst;
use gstreamer::prelude::*;

/// The picture, and its blocks: a row at its top.
const WIDTH: usize = 1_280;
const HEIGHT: usize = 720;
const BLOCK: usize = 32;
const BITS: usize = 16;

/// Luma of black and of white.
const BLACK: u8 = 16;
const WHITE: u8 = 235;

/// Paints a number into the luma of a picture.
fn paint(picture: &mut [u8], number: u16) {
    for row in picture.chunks_exact_mut(WIDTH).take(BLOCK) {
        for bit in 0..BITS {
            let luma = if number >> bit & 1 == 1 { WHITE } else { BLACK };
            row[bit * BLOCK..(bit + 1) * BLOCK].fill(luma);
        }
    }
}

/// Reads it: each bit from the middle of its block.
fn read(picture: &[u8]) -> u16 {
    let middle = |bit: usize| picture[BLOCK / 2 * WIDTH + bit * BLOCK + BLOCK / 2];
    (0..BITS).filter(|bit| middle(*bit) > 128).map(|bit| 1 << bit).sum()
}

/// When pictures were made, and how long those that were shown took.
#[derive(Default)]
struct Times {
    next: u16,
    made: HashMap<u16, Instant>,
    took: Vec<Duration>,
}

fn probe(
    pipeline: &gst::Pipeline,
    name: &str,
    pad: &str,
    mut look: impl FnMut(&mut gst::BufferRef) + Send + 'static,
) -> Result<(), Box<dyn Error>> {
    let element = pipeline.by_name(name).ok_or("no such element")?;
    let pad = element.static_pad(pad).ok_or("no such pad")?;
    let look = Mutex::new(move |buffer: &mut gst::BufferRef| look(buffer));
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let (Some(buffer), Ok(mut look)) = (info.buffer_mut(), look.lock()) {
            look(buffer.make_mut());
        }
        gst::PadProbeReturn::Ok
    });
    Ok(())
}

fn pipeline(text: &str) -> Result<gst::Pipeline, Box<dyn Error>> {
    gst::parse::launch(text)?.downcast().map_err(|_| "not a pipeline".into())
}

/// Waits for the end.
fn wait(pipeline: &gst::Pipeline) -> Result<(), Box<dyn Error>> {
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let bus = pipeline.bus().ok_or("no bus")?;
    match bus.timed_pop_filtered(gst::ClockTime::NONE, &kinds) {
        Some(message) => match message.view() {
            gst::MessageView::Error(error) => Err(error.error().message().into()),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let pictures: u16 = arguments.next().unwrap_or_else(|| "500".to_owned()).parse()?;
    let latency: u32 = arguments.next().unwrap_or_else(|| "60".to_owned()).parse()?;
    let words: Vec<String> = arguments.collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let (sync, ts) = (has("sync"), has("ts"));
    let (mux, demux) = if ts { ("mpegtsmux !", "tsdemux latency=0 !") } else { ("", "") };
    gst::init()?;
    gstontempo::plugin_desc::plugin_register_static()?;
    let port = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let receiving = pipeline(&format!(
        "ontemposrc name=src uri=ontempo://127.0.0.1:{port} ! {demux} h264parse ! \
         avdec_h264 thread-type=slice name=decoder ! video/x-raw,format=I420 ! queue ! fakesink name=screen sync={sync}",
    ))?;
    let times = Arc::<Mutex<Times>>::default();
    let shown = Arc::clone(&times);
    let screen = receiving.by_name("screen").ok_or("no screen")?;
    screen.set_property("signal-handoffs", true);
    screen.connect("handoff", false, move |values| {
        let (Ok(buffer), Ok(mut times)) = (values[1].get::<gst::Buffer>(), shown.lock()) else {
            return None;
        };
        let picture = buffer.map_readable().ok()?;
        if let Some(made) = times.made.remove(&read(&picture)) {
            times.took.push(made.elapsed());
        }
        None
    });
    receiving.set_state(gst::State::Playing)?;
    let source = receiving.by_name("src").ok_or("no source")?;
    let url = source.property::<Option<String>>("url").ok_or("it does not listen")?;
    let sending = pipeline(&format!(
        "videotestsrc name=camera is-live=true pattern=ball num-buffers={pictures} ! \
         video/x-raw,format=I420,width={WIDTH},height={HEIGHT},framerate=25/1 ! \
         x264enc tune=zerolatency speed-preset=ultrafast bitrate=3000 key-int-max=50 ! \
         video/x-h264,profile=main ! {mux} ontemposink sync=false uri={url} latency={latency}"
    ))?;
    let made = Arc::clone(&times);
    probe(&sending, "camera", "src", move |buffer| {
        let (Ok(mut times), Ok(mut picture)) = (made.lock(), buffer.map_writable()) else { return };
        let number = times.next;
        times.next = number.wrapping_add(1);
        paint(&mut picture, number);
        times.made.insert(number, Instant::now());
    })?;
    sending.set_state(gst::State::Playing)?;
    wait(&sending)?;
    wait(&receiving)?;
    sending.set_state(gst::State::Null)?;
    receiving.set_state(gst::State::Null)?;
    let mut took = std::mem::take(&mut times.lock().map_err(|_| "panic")?.took);
    took.sort_unstable();
    let at = |percent: usize| {
        took.get((took.len().saturating_sub(1)) * percent / 100)
            .map_or(0.0, |took| took.as_secs_f64() * 1e3)
    };
    println!(
        "{} of {pictures} pictures: median {:.1} ms, p95 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        took.len(),
        at(50),
        at(95),
        at(99),
        at(100)
    );
    Ok(())
}
