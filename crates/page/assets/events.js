// The chart of events: a lane for each kind, a stroke for each event, its text at the crosshair.

const LANE = 22;
const MAX_TEXTS = 4;

function lanesOf(several) {
  const lanes = [];
  for (const mark of data.marks) {
    const name = several ? `${data.names[mark.run]} ${mark.lane}` : mark.lane;
    let lane = lanes.find((known) => known.name === name);
    if (!lane) {
      lane = { name, run: mark.run, color: several ? mark.run : lanes.length, marks: [] };
      lanes.push(lane);
    }
    lane.marks.push(mark);
  }
  return lanes;
}

function drawLane(plot, lane, place) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const top = bbox.top + place * LANE * ratio;
  ctx.strokeStyle = palette.lines[lane.color % COLORS];
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
}

// What happened near the crosshair, in the lane that it is in.
function textAt(plot, lanes) {
  const { left, top } = plot.cursor;
  if (left == null || left < 0) return "";
  const span = view.to - view.from;
  const [at, near] = [plot.posToVal(left, "x"), 6 * span / plot.over.clientWidth];
  const lane = lanes[Math.floor(top / LANE)];
  const marks = (lane ? [lane] : lanes).flatMap((one) => one.marks);
  const within = marks.filter((mark) => Math.abs(mark.at - at) <= near);
  const texts = within.slice(0, MAX_TEXTS).map((mark) => `${writtenTime(mark.at, span)} ${mark.text}`);
  if (within.length > MAX_TEXTS) texts.push(`${within.length - MAX_TEXTS} more`);
  return texts.join(" · ");
}

function drawEvents(section) {
  const lanes = lanesOf(data.names.length > 1);
  const shown = () => lanes.filter((lane) => !hidden.has(lane.run));
  const text = section.querySelector(".legend");
  const host = section.querySelector(".plot");
  const chart = { time: true, unit: "", id: "events", lines: [] };
  const [along, up] = axes(chart, section);
  const height = () => Math.max(shown().length, 1) * LANE + 42;
  const strokes = (plot) => {
    const { ctx } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    shown().forEach((lane, place) => drawLane(plot, lane, place));
    ctx.restore();
  };
  const plot = new uPlot({
    width: Math.max(host.clientWidth, 200), height: height(), legend: { show: false }, padding: [10, 14, 0, 0],
    series: [{}, { points: { show: false }, paths: () => null }],
    axes: [along, { ...up, values: () => [], grid: { show: false }, ticks: { show: false } }],
    scales: { x: { time: false, range: () => [view.from, view.to] }, y: { range: [0, 1] } },
    cursor: cursorOf(chart),
    hooks: {
      setCursor: [(at) => { text.textContent = textAt(at, shown()); }],
      draw: [strokes], drawAxes: [(drawn) => drawMarks(drawn, false)], setSelect: [onDrag],
    },
  }, [[0, view.end], [null, null]], host);
  plot.root.setAttribute("aria-label", "Events");
  plot.root.setAttribute("role", "img");
  return { plot, height, update: () => plot.setSize({ width: plot.width, height: height() }) };
}
