// One chart: its lines in uPlot, its legend with the values at the crosshair.

const FONT = "12px system-ui, sans-serif";
const AXIS_WIDTH = 50;
// A limit above this many times the data would flatten them.
const LIMIT_IN_SIGHT = 6;

const heightOf = (chart) => (window.innerWidth < 600 ? 190 : 230) + (chart && chart.run != null ? 60 : 0);
const maxOf = (numbers) => numbers.reduce((max, value) => value > max ? value : max, 0);
const highest = (line) => line.shape === "spans" ? 0 : maxOf(line.shape === "band" ? line.high : line.y);
// Its lines are of one film, told apart by form; those of others by the colour of their run.
const isOfOne = (chart) => chart.run != null;
const isHidden = (chart, line) => hidden.has(isOfOne(chart) ? chart.run : line.run);

// The places of a line's series; a band has three.
function seriesOf(chart, line, isAuto, several) {
  const stroke = () => lineColor(line);
  if (line.shape === "symbols" || line.shape === "spans") {
    const paths = line.shape === "spans" ? spansOf(line) : symbolsOf(line);
    return [{ auto: line.shape !== "spans", points: { show: false }, show: true, paths }];
  }
  const common = { auto: isAuto, points: { show: false }, show: true };
  const edge = { ...common, stroke: () => faded(lineColor(line), several ? 0.15 : 0.3), width: 1 };
  const isSolid = line.shape === "line" || line.shape === "steps";
  const isDense = line.x.length > 1500;
  const middle = { ...common, stroke, width: isSolid && isDense ? 1.1 : 1.6, dash: dashOf(line) };
  if (line.shape === "steps" || line.shape === "limit") middle.paths = uPlot.paths.stepped({ align: 1 });
  if (chart.id === "late") middle.points = { show: true, size: 6, fill: stroke, stroke };
  if (chart.id === "losses") middle.fill = () => faded(lineColor(line), several ? 0.08 : 0.18);
  if (line.shape === "points") {
    const fill = () => faded(lineColor(line), 0.6);
    middle.paths = () => null;
    middle.points = { show: true, size: 3.5, width: 0, fill, stroke: fill };
  }
  return line.shape === "band" ? [edge, { ...edge }, middle] : [middle];
}

function tableOf(line) {
  if (line.shape === "spans") return [line.x, line.x.map(() => null)];
  return line.shape === "band" ? [line.x, line.high, line.low, line.y] : [line.x, line.y];
}

// The value of a line at a place of its axis: of the nearest point, or the last one of steps.
function valueAt(line, at) {
  const x = line.x;
  let [low, high] = [0, x.length - 1];
  if (high < 0 || at < x[0] - 1e-9 && line.shape !== "points" && x.length > 1) return null;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (x[middle] <= at) low = middle; else high = middle - 1;
  }
  const holds = line.shape === "steps" || line.shape === "limit";
  const isNextNearer = !holds && low + 1 < x.length && x[low + 1] - at < at - x[low];
  const place = isNextNearer ? low + 1 : low;
  return line.shape === "band" ? [line.y[place], line.low[place], line.high[place]] : [line.y[place]];
}

// Joined lines have no value at the points of others: the nearest that has one.
function nearestIndex(plot, series, index) {
  const values = plot.data[series];
  if (series === 0 || values[index] != null) return index;
  for (let distance = 1; distance < 2000; distance += 1) {
    if (values[index - distance] != null) return index - distance;
    if (values[index + distance] != null) return index + distance;
  }
  return index;
}

function legendOf(chart, host, several) {
  return chart.lines.map((line, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.title = line.detail;
    const swatch = swatchOf(line, several);
    const name = document.createElement("span");
    const run = several && line.shape !== "limit" && !isOfOne(chart) ? `${data.names[line.run]} ` : "";
    name.textContent = `${run}${line.label}`;
    const detail = document.createElement("small");
    // With several runs the names take the room; the button's title has it.
    detail.textContent = several && chart.id !== "losses" && !isOfOne(chart) ? "" : line.detail;
    const value = document.createElement("output");
    button.append(swatch, name, detail, value);
    // What is drawn last lies above, and is named first.
    if (isOfOne(chart)) button.style.order = String(-place);
    host.append(button);
    return { line, button, value, isOff: false };
  });
}

function axes(chart, section) {
  const unitText = section.querySelector(".unit");
  const common = {
    font: FONT, stroke: () => palette.quiet,
    grid: { stroke: () => palette.grid, width: 1 }, ticks: { stroke: () => palette.grid, width: 1, size: 5 },
  };
  const along = {
    ...common, size: 30, space: 64,
    values: (plot, splits) => {
      if (isLogAlong(chart)) return splits.map((at) => written("s", at));
      const [factor, name] = scaleOf("s", chart.time ? 1 : Math.max(...splits.map(Math.abs)));
      return splits.map((at, place) => {
        const text = String(Number((at / factor).toPrecision(9)));
        return place === splits.length - 1 || !chart.time ? `${text} ${name}` : text;
      });
    },
  };
  const up = {
    ...common, size: AXIS_WIDTH, space: 34,
    values: (plot, splits) => {
      const [factor, name] = scaleOf(chart.unit, plot.scales.y.max);
      unitText.textContent = name;
      return splits.map((at) => at == null ? "" : String(Number((at / factor).toPrecision(6))));
    },
  };
  if (chart.id === "delays") {
    up.splits = (plot, axis, min, max) => {
      const first = Math.round(Math.log10(min));
      return Array.from({ length: Math.round(Math.log10(max)) - first + 1 }, (_, place) => 10 ** (first + place));
    };
  }
  for (const [axis, isLog] of [[along, isLogAlong(chart)], [up, isLogUp(chart)]]) {
    if (!isLog) continue;
    axis.splits = (plot, place, min, max) => logSplits(min, max);
    axis.filter = (plot, splits) => splits;
  }
  return [along, up];
}

// Latencies that differ more than this are on a logarithmic axis.
const LOG_FROM = 20;
const LOG_MARKS = [1, 2, 5];

function isLogAlong(chart) {
  const least = Math.min(...chart.lines.map((line) => line.x[0]));
  return chart.id === "on-time" && least > 0 && maxOf(chart.lines.map((line) => line.x.at(-1))) > LOG_FROM * least;
}

function isLogUp(chart) {
  const least = Math.min(...chart.lines.map((line) => line.low ? Math.min(...line.low) : Infinity));
  return chart.id === "frame-latency" && least > 0 && maxOf(chart.lines.map(highest)) > LOG_FROM * least;
}

// 1, 2 and 5 of each power of ten in a range.
function logSplits(min, max) {
  const splits = [];
  for (let power = Math.floor(Math.log10(min)); 10 ** power <= max; power += 1) {
    for (const first of LOG_MARKS) {
      const at = Number((first * 10 ** power).toPrecision(1));
      if (at >= min && at <= max) splits.push(at);
    }
  }
  return splits;
}

// Values marked on the axis along, with their names at the top, as far as there is room.
function drawMarked(plot, chart) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = palette.limit;
  ctx.fillStyle = palette.quiet;
  ctx.lineWidth = ratio;
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "alphabetic";
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  let taken = -Infinity;
  for (const value of chart.marked || []) {
    const x = Math.round(plot.valToPos(value, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const text = written("s", value);
    const half = ctx.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, bbox.left + half), bbox.left + bbox.width - half);
    if (middle - half <= taken) continue;
    ctx.textAlign = "center";
    ctx.fillText(text, middle, bbox.top - 4 * ratio);
    taken = middle + half + 8 * ratio;
  }
  ctx.restore();
}

// All show what was dragged in one.
function onDrag(plot) {
  const { left, width } = plot.select;
  if (width > 0) show(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

// Shares end a little above all; what has no value stands above what has one.
function upRange(chart, min, max) {
  if (chart.unit === "share" && chart.id !== "late") return [0, 1.04];
  if (!isOfOne(chart)) return [0, max > 0 ? max * 1.06 : 1];
  if (!(max > 0)) return [0, 1];
  // Where all are much alike, what sets them apart is seen.
  const from = min > 0.5 * max ? Math.max(0, min - 0.3 * (max - min)) : 0;
  const room = lostRoom(chart) / (heightOf(chart) - 60);
  return [from, max + (0.06 * max + room * (max - from)) / (1 - room) * (from > 0 ? 0.4 : 1)];
}

// Marked values have room beside them.
function alongRange(chart, min, max) {
  if (isLogAlong(chart) && !(min > 0)) return [0.01, 1];
  if (min === max) min = 0;
  if (!chart.marked) return [min, max];
  return isLogAlong(chart) ? [min / 1.1, max * 1.1] : [Math.max(0, min - 0.03 * (max - min)), max + 0.03 * (max - min)];
}

function scalesOf(chart) {
  const isLog = chart.id === "delays";
  const up = isLog
    ? { distr: 3, range: (plot, min) => [10 ** Math.floor(Math.log10(Math.max(min || 1e-3, 1e-9))), 1] }
    : isLogUp(chart)
      ? { distr: 3, range: (plot, min, max) => min > 0 ? [min / 1.2, max * 1.2] : [0.01, 1] }
      : { range: (plot, min, max) => upRange(chart, min, max) };
  const along = { time: false };
  if (isLogAlong(chart)) along.distr = 3;
  if (chart.time) along.range = () => [view.from, view.to];
  else along.range = (plot, min, max) => alongRange(chart, min, max);
  return { x: along, y: up };
}

// Lines of events that concern all.
function drawMarks(plot, isFirst) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.strokeStyle = palette.mark;
  ctx.fillStyle = palette.quiet;
  ctx.lineWidth = devicePixelRatio;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  let taken = -Infinity;
  for (const mark of data.marks) {
    if (!mark.all || mark.at < view.from || mark.at > view.to || hidden.has(mark.run)) continue;
    const x = Math.round(plot.valToPos(mark.at, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (isFirst && x > taken) {
      ctx.fillText(mark.text, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
      taken = x + ctx.measureText(mark.text).width + 8 * devicePixelRatio;
    }
  }
  ctx.restore();
}

function cursorOf(chart) {
  const cursor = {
    y: false, points: { size: 7, width: 1.5 }, dataIdx: nearestIndex,
    drag: { x: true, y: false, setScale: true },
  };
  if (chart.time) {
    cursor.drag.setScale = false;
    cursor.sync = { key: "time", scales: ["x", null], setSeries: false };
    cursor.bind = { dblclick: () => () => { showAll(); return null; } };
  }
  return cursor;
}

function hooksOf(chart, section, entries, isFirst) {
  const readout = document.createElement("output");
  readout.className = "at";
  section.querySelector("h2").append(readout);
  const setCursor = (plot) => {
    const { left } = plot.cursor;
    const isInside = left != null && left >= 0;
    const at = isInside ? plot.posToVal(left, "x") : null;
    const text = at == null ? "" : chart.time ? writtenTime(at, view.to - view.from) : written("s", at);
    readout.textContent = text;
    for (const entry of entries) {
      if (entry.line.form || entry.line.shape === "spans") continue;
      const values = at == null ? null : valueAt(entry.line, at);
      entry.value.textContent = values == null ? ""
        : values.length === 1 ? written(chart.unit, values[0])
          : `${written(chart.unit, values[0])} (${written(chart.unit, values[1])} … ${written(chart.unit, values[2])})`;
    }
  };
  const hooks = { setCursor: [setCursor] };
  if (chart.time) {
    hooks.setSelect = [onDrag];
    hooks.drawAxes = [(plot) => drawMarks(plot, isFirst)];
  }
  if (chart.marked) hooks.drawAxes = [(plot) => drawMarked(plot, chart)];
  return hooks;
}

// Draws a chart into its section; answers the plot and what switches its lines.
function draw(chart, section, several, isFirst) {
  const entries = legendOf(chart, section.querySelector(".legend"), several);
  const top = maxOf(chart.lines.filter((line) => line.shape !== "limit").map(highest));
  const series = [{}];
  const bands = [];
  for (const entry of entries) {
    const isFar = entry.line.shape === "limit" && top > 0 && highest(entry.line) > LIMIT_IN_SIGHT * top;
    entry.isFar = isFar;
    entry.first = series.length;
    series.push(...seriesOf(chart, entry.line, !isFar, several));
    entry.end = series.length;
    if (entry.line.shape === "band") {
      const fill = () => faded(lineColor(entry.line), several ? 0.08 : 0.16);
      bands.push({ series: [entry.first, entry.first + 1], fill });
    }
    if (isFar) entry.button.querySelector("small").textContent = `${written(chart.unit, highest(entry.line))}, above the chart`;
  }
  const host = section.querySelector(".plot");
  const options = {
    width: Math.max(host.clientWidth, 200), height: heightOf(chart), legend: { show: false },
    padding: [chart.marked ? 20 : 10, 14, 0, 0], series, bands, axes: axes(chart, section), scales: scalesOf(chart),
    cursor: cursorOf(chart), hooks: hooksOf(chart, section, entries, isFirst),
  };
  const plot = new uPlot(options, uPlot.join(chart.lines.map(tableOf)), host);
  plot.root.setAttribute("aria-label", chart.title);
  plot.root.setAttribute("role", "img");
  const update = () => plot.batch(() => {
    section.hidden = isOfOne(chart) && hidden.has(chart.run);
    for (const entry of entries) {
      const isShown = !entry.isOff && !isHidden(chart, entry.line);
      entry.button.hidden = isHidden(chart, entry.line) && entry.line.shape !== "limit";
      entry.button.setAttribute("aria-pressed", String(!entry.isOff));
      for (let place = entry.first; place < entry.end; place += 1) {
        const isLimit = entry.line.shape === "limit";
        plot.setSeries(place, { show: isLimit ? !entry.isOff : isShown });
      }
    }
  });
  for (const entry of entries) {
    entry.button.addEventListener("click", () => { entry.isOff = !entry.isOff; update(); });
  }
  return { plot, update, height: () => heightOf(chart) };
}
