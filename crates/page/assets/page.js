// The page: events, the switches of runs, theme, size, print.

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const root = document.documentElement;
const LANE = 22;

function fail(what) {
  const place = document.getElementById("error");
  place.textContent = `The page could not be drawn: ${what}`;
  place.hidden = false;
  root.dataset.error = what;
}
window.addEventListener("error", (event) => fail(event.message));

// The lanes of events: a stroke for each, its text at the crosshair.
function drawEvents(section) {
  const several = data.names.length > 1;
  const lanes = [];
  for (const mark of data.marks) {
    const name = several ? `${data.names[mark.run]} ${mark.lane}` : mark.lane;
    let lane = lanes.find((known) => known.name === name);
    if (!lane) lanes.push(lane = { name, run: mark.run, marks: [] });
    lane.marks.push(mark);
  }
  const shown = () => lanes.filter((lane) => !hidden.has(lane.run));
  const text = section.querySelector(".legend");
  const strokes = (plot) => {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    shown().forEach((lane, place) => {
      const top = bbox.top + place * LANE * ratio;
      ctx.fillStyle = ctx.strokeStyle = palette.lines[(several ? lane.run : lanes.indexOf(lane)) % COLORS];
      ctx.lineWidth = 1.5 * ratio;
      ctx.beginPath();
      for (const mark of lane.marks) {
        if (mark.at < view.from || mark.at > view.to) continue;
        const x = Math.round(plot.valToPos(mark.at, "x", true));
        ctx.moveTo(x, top + 3 * ratio);
        ctx.lineTo(x, top + (LANE - 4) * ratio);
      }
      ctx.stroke();
      const width = ctx.measureText(lane.name).width;
      ctx.fillStyle = faded(palette.surface, 0.85);
      ctx.fillRect(bbox.left + 2 * ratio, top + 3 * ratio, width + 8 * ratio, (LANE - 7) * ratio);
      ctx.fillStyle = palette.quiet;
      ctx.fillText(lane.name, bbox.left + 6 * ratio, top + 14.5 * ratio);
    });
    ctx.restore();
  };
  const setCursor = (plot) => {
    const { left, top } = plot.cursor;
    if (left == null || left < 0) { text.textContent = ""; return; }
    const at = plot.posToVal(left, "x");
    const near = 6 * (view.to - view.from) / plot.over.clientWidth;
    const lane = shown()[Math.floor(top / LANE)];
    const marks = (lane ? [lane] : shown()).flatMap((one) => one.marks);
    const within = marks.filter((mark) => Math.abs(mark.at - at) <= near);
    const words = within.slice(0, 4).map((mark) => `${writtenTime(mark.at, view.to - view.from)} ${mark.text}`);
    text.textContent = words.join(" · ") + (within.length > 4 ? ` · ${within.length - 4} more` : "");
  };
  const chart = { time: true, unit: "", id: "events" };
  const [along, up] = axes(chart, section);
  const height = () => Math.max(shown().length, 1) * LANE + 42;
  const host = section.querySelector(".plot");
  const plot = new uPlot({
    width: Math.max(host.clientWidth, 200), height: height(), legend: { show: false }, padding: [10, 14, 0, 0],
    series: [{}, { show: true, points: { show: false }, paths: () => null }],
    axes: [along, { ...up, values: () => [], grid: { show: false }, ticks: { show: false } }],
    scales: { x: { time: false, range: rangeInView }, y: { range: [0, 1] } },
    cursor: cursorOf(chart),
    hooks: {
      setCursor: [setCursor], draw: [strokes], drawAxes: [(drawn) => drawMarks(drawn, false)],
      setScale: [(drawn, key) => {
        if (key === "x" && !view.isMoving && view.charts.includes(drawn)) show(drawn.scales.x.min, drawn.scales.x.max);
      }],
    },
  }, [[0, view.end], [null, null]], host);
  plot.root.setAttribute("aria-label", "Events");
  plot.root.setAttribute("role", "img");
  return { plot, height, update: () => plot.setSize({ width: plot.width, height: height() }) };
}

function drawAll() {
  readColors();
  view.end = view.to = data.end || 1;
  const several = data.names.length > 1;
  let isFirst = true;
  const drawn = [];
  for (const section of document.querySelectorAll(".chart")) {
    const chart = data.charts.find((known) => known.id === section.id);
    const made = chart ? draw(chart, section, several, isFirst) : drawEvents(section);
    const isOverTime = !chart || chart.time;
    isFirst = false;
    if (isOverTime) {
      view.charts.push(made.plot);
      listen(made.plot);
      uPlot.sync("time").sub(made.plot);
    }
    drawn.push({ ...made, section });
  }
  return drawn;
}

function fit(drawn, width) {
  for (const { plot, section, height } of drawn) {
    const own = width || section.querySelector(".plot").clientWidth;
    const high = height ? height() : heightOf();
    if (own > 0 && (own !== plot.width || high !== plot.height)) plot.setSize({ width: own, height: high });
  }
}

function recolor(drawn) {
  readColors();
  for (const { plot } of drawn) plot.redraw(false, true);
}

function switchRuns(drawn) {
  for (const box of document.querySelectorAll(".runs input")) {
    box.addEventListener("change", () => {
      const run = Number(box.value);
      if (box.checked) hidden.delete(run); else hidden.add(run);
      for (const row of document.querySelectorAll(`tr[data-run="${run}"]`)) row.classList.toggle("off", !box.checked);
      for (const { plot, update } of drawn) { update(); plot.redraw(); }
    });
  }
}

function switchTheme(drawn) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const button = document.getElementById("theme");
  const label = () => { button.textContent = isDark() ? "☀" : "☾"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
    recolor(drawn);
  });
  system.addEventListener("change", () => { label(); recolor(drawn); });
  label();
}

// On paper: light, as wide as a page.
function print(drawn) {
  const PAPER = 680;
  let before;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    root.classList.add("print");
    recolor(drawn);
    fit(drawn, PAPER);
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    root.classList.remove("print");
    recolor(drawn);
    fit(drawn);
  });
}

const drawn = drawAll();
switchRuns(drawn);
switchTheme(drawn);
print(drawn);
document.getElementById("reset").addEventListener("click", showAll);
new ResizeObserver(() => { if (!root.classList.contains("print")) fit(drawn); }).observe(document.body);
root.dataset.drawn = String(drawn.length);
