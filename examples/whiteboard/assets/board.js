// The page of a participant: two boards, and the time from drawing to showing on each.

import { paint } from "./paint.js";
import { hashOf, milliseconds, panel, plot, put, quantile } from "./panel.js";
import { ITSELF_MS, chooseTools, drawOn, something } from "./tools.js";
import { visit } from "./visit.js";

// What the figures and the chart are of.
const LAST = 400;
const CHART = 200;
const MOST_PENDING = 400;

class Lane {
  constructor(name) {
    this.name = name;
    this.canvas = document.getElementById(name);
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.glass = this.canvas.nextElementSibling;
    this.begin();
  }

  begin() {
    this.shown = 0;
    this.waiting = 0;
    this.times = [];
    this.numbers = [];
    // Of the objects that were there before: when their way began, and when shares of them were shown.
    this.old = { shown: 0, begun: 0, times: new Map() };
    // Own objects that have not come back.
    this.pending = new Map();
    paint(this.context, { kind: "wipe" });
    this.paintGlass();
  }

  show({ number, ms, is_old: isOld, drawn, bounds }, me) {
    this.shown += 1;
    this.numbers.push(number);
    if (isOld) this.showOld();
    if (!drawn) return;
    paint(this.context, drawn.object, bounds);
    if (!isOld) this.times.push({ number, ms });
    if (this.times.length > LAST) this.times.shift();
    if (drawn.by === me && this.pending.delete(drawn.mark)) this.paintGlass();
  }

  showOld() {
    const { old } = this;
    old.shown += 1;
    for (const percent of [50, 90, 100]) {
      if (!old.times.has(percent) && old.shown >= (percent / 100) * found) {
        old.times.set(percent, performance.now() - old.begun);
      }
    }
  }

  expect(mark, object) {
    if (this.pending.size >= MOST_PENDING) this.pending.clear();
    this.pending.set(mark, object);
    paint(this.glass.getContext("2d"), object);
  }

  paintGlass() {
    const context = this.glass.getContext("2d");
    context.clearRect(0, 0, this.glass.width, this.glass.height);
    for (const object of this.pending.values()) paint(context, object);
  }

  figures() {
    const times = this.times.map((one) => one.ms);
    return Object.fromEntries([50, 90, 95, 100].map((percent) => [percent, quantile(times, percent / 100)]));
  }
}

const lanes = { "in-order": new Lane("in-order"), "partial-order": new Lane("partial-order") };
const all = Object.values(lanes);
let me = null;
let sent = 0;
// Units that were there when this participant came.
let found = 0;
let mark = 0;
let send = () => {};
let leave = () => {};
let isStale = true;

function draw(object) {
  mark += 1;
  for (const lane of all) lane.expect(mark, object);
  send({ do: "draw", object, mark });
}

const setPath = panel(document.getElementById("path"), (impairment) => send({ do: "path", impairment }));

const on = {
  welcome({ you, units, impairment }) {
    me = you;
    found = units;
    sent = units;
    setPath(impairment);
  },
  sent({ units }) { sent = Math.max(sent, units); },
  open({ lane }) { lanes[lane].old.begun = performance.now(); },
  shown(message) { lanes[message.lane].show(message, me); },
  status({ lane, waiting, units, participants, impairment }) {
    lanes[lane].waiting = waiting;
    sent = Math.max(sent, units);
    setPath(impairment);
    put("participants", participants === 1 ? "You are alone here." : `${participants} participants.`);
  },
  broken({ why }) {
    put("message", why);
    leave();
  },
  refused({ why }) {
    put("message", `Refused: ${why}`);
    for (const lane of all) {
      lane.pending.clear();
      lane.paintGlass();
    }
  },
};

function chart() {
  const { context, width, height, colour } = plot(document.getElementById("history"));
  const newest = Math.max(0, ...all.map((lane) => lane.times.at(-1)?.number ?? 0));
  const first = Math.max(0, newest - CHART + 1);
  const points = all.map((lane) => lane.times.filter((one) => one.number >= first));
  const most = Math.max(100, ...points.flat().map((one) => one.ms));
  const [left, bottom, top] = [48, height - 6, 8];
  const y = (ms) => bottom - (ms / most) * (bottom - top);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colour("--quiet");
  context.strokeStyle = colour("--line");
  for (const ms of [0, most / 2, most]) {
    context.fillText(Math.round(ms), 0, y(ms) + 4);
    context.beginPath();
    context.moveTo(left, y(ms));
    context.lineTo(width, y(ms));
    context.stroke();
  }
  const step = (width - left - 8) / CHART;
  points.forEach((some, at) => {
    context.fillStyle = colour(`--${all[at].name}`);
    for (const { number, ms } of some) {
      context.beginPath();
      context.arc(left + 4 + (number - first) * step, y(ms), 2.2, 0, 7);
      context.fill();
    }
  });
}

function showFigures() {
  if (!isStale) return;
  isStale = false;
  for (const lane of all) {
    put(`${lane.name}-shown`, `${lane.shown}`);
    put(`${lane.name}-under-way`, `${Math.max(0, sent - lane.shown)}`);
    put(`${lane.name}-waiting`, `${lane.waiting}`);
    for (const [percent, ms] of Object.entries(lane.figures())) put(`${lane.name}-${percent}`, milliseconds(ms));
    const times = [...lane.old.times].map(([percent, ms]) => `${percent} % of them after ${milliseconds(ms)}`);
    put(`${lane.name}-found`, found > 0 ? `${found} were here when you came: ${times.join(", ") || "under way"}.` : "");
  }
  chart();
}

chooseTools();
for (const lane of all) drawOn(lane.glass, draw);
document.getElementById("wipe").addEventListener("click", () => draw({ kind: "wipe" }));
const itself = document.getElementById("itself");
setInterval(() => {
  if (itself.getAttribute("aria-pressed") === "true") draw(something());
}, ITSELF_MS);
itself.addEventListener("click", () => {
  itself.setAttribute("aria-pressed", String(itself.getAttribute("aria-pressed") !== "true"));
});
setInterval(showFigures, 250);
addEventListener("resize", () => { isStale = true; });

visit("/board", (sender, leaver) => {
  send = sender;
  leave = leaver;
  sent = 0;
  for (const lane of all) lane.begin();
}, (message) => {
  on[message.event]?.(message);
  isStale = true;
});

// For the tests, and for the curious.
window.ontempo = { lanes, draw, something, hashOf, sent: () => sent, send: (message) => send(message) };
