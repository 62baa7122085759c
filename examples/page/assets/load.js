// The page that loads another one twice at once: in order, and in any order.

import { Article, parse } from "./article.js";
import { hashOf, milliseconds, panel, plot, put, quantile } from "./panel.js";
import { visit } from "./visit.js";

const PAUSE_MS = 1200;
const MOST_LOADS = 200;

const articles = [new Article("in-order"), new Article("partial-order")];
const loads = articles.map(() => []);
const button = document.getElementById("load");
const again = document.getElementById("again");
let send = () => {};
let isLoading = false;
let hasEnded = false;

const setPath = panel(document.getElementById("path"), (impairment) => send({ do: "path", impairment }));

function load() {
  if (isLoading) return;
  put("message", "");
  isLoading = true;
  hasEnded = false;
  button.disabled = true;
  send({ do: "load" });
}

function end() {
  isLoading = false;
  button.disabled = false;
}

// Once both are painted: their times are kept, and the next load may begin.
function settle() {
  if (!isLoading || !hasEnded) return;
  // One that failed is told in a sentence, and has no times.
  if (!articles.every((article) => article.whole)) {
    end();
    return;
  }
  if (!articles.every((article) => article.isPainted())) return;
  articles.forEach((article, lane) => {
    loads[lane].push(article.times());
    if (loads[lane].length > MOST_LOADS) loads[lane].shift();
  });
  end();
  showFigures();
  if (again.checked) setTimeout(load, PAUSE_MS);
}

const on = {
  path({ impairment }) { setPath(impairment); },
  begin() {
    const now = performance.now();
    for (const article of articles) article.begin(now);
  },
  page({ lane, page }) { articles[lane].describe(page); },
  whole(message) { articles[message.lane].whole = message; },
  ended() { hasEnded = true; },
  refused({ why }) { put("message", `Refused: ${why}`); },
};

function chart() {
  const { context, width, height, colour } = plot(document.getElementById("chart"));
  const [left, right, bottom, top] = [36, width - 8, height - 20, 8];
  const most = Math.max(200, ...articles.map((article) => article.curve.at(-1)?.[0] ?? 0));
  const x = (ms) => left + (ms / most) * (right - left);
  const y = (share) => bottom - share * (bottom - top);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colour("--quiet");
  context.strokeStyle = colour("--line");
  for (const share of [0, 0.5, 0.9, 1]) {
    if (share !== 0.9) context.fillText(`${100 * share}`, 0, y(share) + 4);
    context.beginPath();
    context.moveTo(left, y(share));
    context.lineTo(right, y(share));
    context.stroke();
  }
  context.textAlign = "right";
  context.fillText(milliseconds(most), right, height - 4);
  context.textAlign = "left";
  context.fillText("0", left, height - 4);
  context.lineWidth = 2;
  for (const article of articles) {
    context.strokeStyle = colour(`--${article.name}`);
    context.beginPath();
    context.moveTo(x(0), y(0));
    let before = 0;
    for (const [ms, pixels] of article.curve) {
      context.lineTo(x(ms), y(before));
      before = pixels / article.pixels;
      context.lineTo(x(ms), y(before));
    }
    context.stroke();
  }
}

function showFigures() {
  articles.forEach((article, lane) => {
    for (const [key, time] of Object.entries(article.times())) {
      put(`${article.name}-${key}`, milliseconds(time));
      const all = loads[lane].map((one) => one[key]);
      put(`${article.name}-${key}-median`, milliseconds(quantile(all, 0.5)));
    }
  });
  const count = loads[0].length;
  put("loads", count === 0 ? "" : `${count} ${count === 1 ? "load" : "loads"}`);
  chart();
}

button.addEventListener("click", load);
again.addEventListener("change", () => { if (again.checked) load(); });
setInterval(() => {
  settle();
  if (isLoading) showFigures();
}, 100);
addEventListener("resize", showFigures);
showFigures();

visit("/load", (sender) => {
  send = sender;
  end();
}, (message) => {
  if (!(message instanceof Uint8Array)) {
    on[message.event]?.(message);
    return;
  }
  const painted = parse(message);
  articles[painted.lane].paint(painted);
});

// For the tests, and for the curious.
window.ontempo = { articles, loads, load, hashOf, send: (message) => send(message) };
