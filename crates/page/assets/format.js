// Numbers with units, and the colours of the theme.

const SCALES = {
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  "B": [[1e6, "MB"], [1e3, "kB"], [1, "B"]],
  "s": [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
  "share": [[0.01, "%"]],
};

// The factor and the name of the unit in which a value of this size is written.
function scaleOf(unit, size) {
  const scales = SCALES[unit];
  if (!scales) return [1, unit];
  return scales.find(([factor]) => size >= factor) || scales[scales.length - 1];
}

// Three significant digits; more if they stand before the point.
function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  return String(Number(value.toPrecision(3)));
}

function written(unit, value) {
  if (value == null || Number.isNaN(value)) return "–";
  const [factor, name] = scaleOf(unit, Math.abs(value));
  return `${digits(value / factor)} ${name}`;
}

// A time of the run, as fine as the view is long.
function writtenTime(seconds, span) {
  const places = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(span || 1))));
  return `${seconds.toFixed(places)} s`;
}

const COLORS = 12;
const NAMED = ["ink", "quiet", "grid", "surface", "limit", "mark", "bad"];
let palette = {};

// Reads the theme's colours: a canvas knows no variables of CSS.
function readColors() {
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  palette = Object.fromEntries(NAMED.map((name) => [name, read(name)]));
  palette.lines = Array.from({ length: COLORS }, (_, place) => read(`c${place}`));
  probe.remove();
}

const lineColor = (line) => line.shape === "limit" ? palette.limit : palette.lines[line.color % COLORS];

// The colour with this opacity.
function faded(color, opacity) {
  const parts = color.match(/[\d.]+/g) || [0, 0, 0];
  return `rgba(${parts[0]}, ${parts[1]}, ${parts[2]}, ${opacity})`;
}

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 5], [4, 2]];
const dashOf = (line) => line.shape === "limit" ? [5, 4] : DASHES[line.dash % DASHES.length];
