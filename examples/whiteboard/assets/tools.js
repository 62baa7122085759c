// What a participant draws: with the pointer, or by itself.

import { HEIGHT, WIDTH } from "./paint.js";

// A stroke is sent in pieces of so many points, or each so many milliseconds.
const PIECE_POINTS = 12;
const PIECE_MS = 120;
const LINE = 5;
const LETTERS = 28;
// Objects that are drawn by itself: one each so many milliseconds.
export const ITSELF_MS = 100;

const within = (value, most) => Math.min(most, Math.max(0, Math.round(value)));

function place(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return [
    within(((event.clientX - box.left) / box.width) * WIDTH, WIDTH),
    within(((event.clientY - box.top) / box.height) * HEIGHT, HEIGHT),
  ];
}

const colour = () => document.getElementById("colour").value;
const chosen = () => document.querySelector("[data-tool][aria-pressed=true]").dataset.tool;

export function chooseTools() {
  const tools = document.querySelectorAll("[data-tool]");
  for (const tool of tools) {
    tool.addEventListener("click", () => {
      for (const other of tools) other.setAttribute("aria-pressed", String(other === tool));
    });
  }
}

// Lets a participant draw on a canvas; `draw(object)` for each object.
export function drawOn(canvas, draw) {
  let tool = null;
  let points = [];
  let begun = 0;
  const flush = () => {
    if (points.length === 0) return;
    draw({ kind: "stroke", points, width: LINE, colour: colour() });
    // The next piece begins where this one ends, and so depends on it.
    points = [points[points.length - 1]];
    begun = performance.now();
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (tool !== null || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    tool = chosen();
    points = [place(canvas, event)];
    begun = performance.now();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (tool === null) return;
    const next = place(canvas, event);
    const [x, y] = points[points.length - 1];
    if (next[0] === x && next[1] === y) return;
    points.push(next);
    if (tool === "stroke" && (points.length >= PIECE_POINTS || performance.now() - begun > PIECE_MS)) flush();
    if (tool !== "stroke") points = [points[0], next];
  });
  const end = (event) => {
    if (tool === null) return;
    const at = place(canvas, event);
    const text = document.getElementById("text").value;
    if (tool === "stroke") flush();
    if (tool === "rectangle") draw({ kind: "rectangle", from: points[0], to: at, colour: colour() });
    if (tool === "text" && text) draw({ kind: "text", at, text, size: LETTERS, colour: colour() });
    tool = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

const COLOURS = ["#0b63c4", "#b3541e", "#2c7a3f", "#7a3fa0", "#c2a300", "#1f1f1f"];
const any = (most) => Math.floor(Math.random() * most);

// An object somewhere: small, so that few overlap.
export function something() {
  const [x, y] = [any(WIDTH - 70), any(HEIGHT - 50)];
  const shade = COLOURS[any(COLOURS.length)];
  const kind = any(10);
  if (kind === 0) return { kind: "text", at: [x, y], text: "ADU", size: 20, colour: shade };
  if (kind < 4) return { kind: "rectangle", from: [x, y], to: [x + 8 + any(40), y + 8 + any(30)], colour: shade };
  const points = Array.from({ length: 8 }, (_, at) => [x + at * 7, y + 5 + any(30)]);
  return { kind: "stroke", points, width: 4, colour: shade };
}
