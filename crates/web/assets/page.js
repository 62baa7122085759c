// The page: connects, shows pictures and figures, plays sound, and says what is wrong.

import { FULL, WRONG_TOKEN, watch } from "./session.js";
import { Clock, NO_KEY, Pictures } from "./playout.js";
import { Sound } from "./sound.js";
import { PLAYER, withoutKeys } from "./codecs.js";

const INSTEAD = `Watch it with a player: ${PLAYER}`;
const $ = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

let problem = null;
let said = null;
function say(sentence) {
  if (sentence === said) return;
  said = sentence;
  $("message").textContent = sentence;
}
// What goes wrong with the stream itself; it stays until another one begins, or until `null` says that it is over.
function onProblem(sentence) {
  problem = sentence;
  if (sentence !== null) say(sentence);
}
// Why no sound is heard; it stays until sound is turned off.
let silence = null;

const clock = new Clock();
let pictures;
let sound;
const rates = [];
let receiver = {};
let painted = 0;
// The pictures of a stream of which none has come: the receiver sends them from a key picture on. Their coding, and since when.
let awaited = null;
// Frames that the receiver did not send, as this line was too slow.
let leftOut = 0;

function restart() {
  pictures.restart();
  sound.restart();
}

function awaitPictures(stream) {
  if (stream === undefined) awaited = null;
  else if (awaited?.coding !== stream.stream_type) awaited = { coding: stream.stream_type, since: performance.now() };
}

function onDocument(told) {
  const coded = told.streams?.find((one) => !one.sound);
  switch (told.event) {
    case "waiting":
      say("Waiting for a sender …");
      break;
    case "stream":
      pictures.latency = told.latency_s === null ? null : told.latency_s * 1000;
      problem = silence = null;
      if (told.is_foreign) {
        onProblem(`The stream is no MPEG transport stream, which is what this page shows. ${INSTEAD}`);
      } else if (told.streams.length === 0) {
        say("Waiting for the stream …");
      } else if (coded === undefined) {
        say("The stream has only sound.");
      } else if (painted === pictures.figures.painted) {
        say("Waiting for a key picture …");
      }
      awaitPictures(coded);
      break;
    case "lost":
      awaited = null;
      say("The receiver has lost its sender, and waits for it …");
      break;
    case "ended":
      awaited = null;
      say("The stream has ended. Waiting for the next …");
      restart();
      break;
    case "time":
      leftOut = told.left_out;
      break;
    case "figures":
      receiver = told;
      break;
  }
}

function onMessage(message, arrived, bytes) {
  clock.heard(message.sent, arrived);
  if (message.document) {
    onDocument(message.document);
    return;
  }
  if (!message.isCatchUp && clock.isOver(message)) return;
  if (!message.isSound) awaited = null;
  rates.push({ at: arrived, bytes, isPicture: !message.isSound });
  if (!message.isCatchUp && clock.note(message, arrived)) restart();
  (message.isSound ? sound : pictures).take(message);
}

async function stay(token) {
  let pause = 500;
  for (;;) {
    let code = null;
    try {
      const opened = performance.now();
      code = await watch(token, onMessage);
      if (performance.now() - opened > 5000) pause = 500;
    } catch {
      // It did not open.
    }
    clock.forget();
    restart();
    if (code === WRONG_TOKEN) {
      say(token ? "The token of this link is wrong: ask for a new link. The receiver makes a new one at each start."
        : "This link has no token: open the whole link that the receiver prints, up to its end.");
      return;
    }
    say(code === FULL ? "All places for viewers are taken; trying again …"
      : "No connection to the receiver; trying again … If it has been started anew, ask for its new link.");
    await wait(pause);
    pause = Math.min(pause * 2, 5000);
  }
}

const ms = (value) => `${value.toFixed(0)} ms`;
const mbit = (value) => `${(value / 1e6).toFixed(2)} Mbit/s`;
function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[sorted.length >> 1];
}

function drawHistory(now) {
  const canvas = $("history");
  const scale = devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const span = 20000;
  const shown = pictures.history.filter((one) => now - one.at < span);
  const asked = pictures.latency ?? 0;
  const top = Math.max(asked * 1.25, ...shown.map((one) => one.latency), 50) * 1.05;
  const style = getComputedStyle(canvas);
  // Below the words at the top.
  const y = (value) => height - (value / top) * (height - 15 * scale);
  context.fillStyle = style.color;
  for (const { at, latency } of shown) {
    context.fillRect(width - ((now - at) / span) * width, y(latency) - scale, 1.5 * scale, 2 * scale);
  }
  context.strokeStyle = style.getPropertyValue("--quiet");
  context.setLineDash([4 * scale, 4 * scale]);
  context.beginPath();
  context.moveTo(0, y(asked));
  context.lineTo(width, y(asked));
  context.stroke();
  context.fillStyle = style.getPropertyValue("--quiet");
  context.font = `${11 * scale}px sans-serif`;
  context.textAlign = "left";
  context.fillText(ms(top), 2 * scale, 11 * scale);
  context.textAlign = "right";
  context.fillText("the last 20 s", width - 2 * scale, 11 * scale);
}

function showFigures() {
  const now = performance.now();
  while (rates.length > 0 && now - rates[0].at > 2000) rates.shift();
  const recent = pictures.history.filter((one) => now - one.at < 2000).map((one) => one.latency);
  const text = (id, value) => { $(id).textContent = value; };
  const known = (value, write) => (value === null || value === undefined ? "–" : write(value));
  text("latency", recent.length > 0 ? ms(median(recent)) : "–");
  text("asked", pictures.latency === null ? "none" : ms(pictures.latency));
  text("rate", mbit(rates.reduce((sum, one) => sum + one.bytes, 0) * 4));
  text("pictures", `${(recent.length / 2).toFixed(0)} a second`);
  for (const key of ["painted", "late", "tainted"]) text(key, pictures.figures[key]);
  text("dropped", pictures.figures.dropped + leftOut);
  text("input", known(receiver.input_bps, mbit));
  text("trip", known(receiver.round_trip_s, (value) => ms(value * 1000)));
  text("units-late", known(receiver.late_units, String));
  text("units-dropped", known(receiver.dropped_units, String));
  const missing = (receiver.missing_datagrams ?? 0) + (receiver.damaged_datagrams ?? 0);
  text("missing", receiver.missing_datagrams === undefined ? "–" : String(missing));
  text("viewers", known(receiver.viewers, String));
  if (painted !== pictures.figures.painted && problem === null) say(silence ?? "");
  painted = pictures.figures.painted;
  if (awaited !== null && now - awaited.since > NO_KEY) onProblem(withoutKeys(awaited.coding, NO_KEY / 1000));
  $("sound").hidden = !sound.isThere;
  $("sound").textContent = sound.isOn ? "Sound off" : "Sound on";
  drawHistory(now);
}

function missingParts() {
  if (!isSecureContext) return "Browsers show the stream only over HTTPS, or from this machine's own address 127.0.0.1.";
  if (!("WebTransport" in window)) return "This browser has no WebTransport. Chrome, Edge, Firefox and Safari have it in their new versions.";
  if (!("VideoDecoder" in window)) return "This browser has no WebCodecs. Chrome, Edge, Firefox and Safari have it in their new versions.";
  return null;
}

function begin() {
  const missing = missingParts();
  if (missing) {
    say(`${missing} ${INSTEAD}`);
    return;
  }
  pictures = new Pictures($("picture"), clock, onProblem);
  sound = new Sound(clock, (why) => {
    silence = why;
    if (problem === null) say(why);
  });
  $("sound").addEventListener("click", () => {
    silence = null;
    (sound.isOn ? sound.turnOff() : sound.turnOn()).then(showFigures);
  });
  $("full").addEventListener("click", () => {
    if (document.fullscreenElement) document.exitFullscreen();
    else $("screen").requestFullscreen?.();
  });
  // What tests and the console may read.
  window.ontempo = { clock, pictures, sound, onMessage };
  setInterval(showFigures, 500);
  const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
  addEventListener("hashchange", () => location.reload());
  stay(token);
}

begin();
