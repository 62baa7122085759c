// Symbols of frames and units, and shaded spans: a form for each kind, so that no colour is needed.

// Outlines within one unit of the middle, as SVG has them; how large; filled or stroked; the colour's name.
const FORMS = {
  key: { path: "M0-1.25L1.25 0 0 1.25-1.25 0Z", size: 4, isFilled: true, color: "c1" },
  reference: { path: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0Z", size: 2, isFilled: true, color: "c0" },
  disposable: { path: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0Z", size: 2.1, isFilled: false, color: "c2" },
  sound: { path: "M0-1L0 1", size: 2.6, isFilled: false, color: "c10" },
  unit: { path: "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0Z", size: 2, isFilled: true, color: "c0" },
  undecodable: { path: "M-1-1H1V1H-1Z", size: 4, isFilled: false, color: "bad" },
  lost: { path: "M-1-1L1 1M1-1L-1 1", size: 3.4, isFilled: false, color: "bad", lane: 0 },
  "lost-sound": { path: "M0-1V1M-1 0H1", size: 3, isFilled: false, color: "quiet", lane: 1 },
};
const LOST_LANE = 9;

const formColor = (form) => form.color.startsWith("c") ? palette.lines[Number(form.color.slice(1))] : palette[form.color];

// Room at the top of a chart for what has no value.
function lostRoom(chart) {
  const lanes = chart.lines.filter((line) => line.form && FORMS[line.form].lane != null);
  return lanes.length ? LOST_LANE * (1 + Math.max(...lanes.map((line) => FORMS[line.form].lane))) : 0;
}

// Draws in place of a path: uPlot calls it for each series that is shown, in their order.
function symbolsOf(line) {
  const form = FORMS[line.form];
  const outline = new Path2D(form.path);
  return (plot) => {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - LOST_LANE * ratio, bbox.width, bbox.height + LOST_LANE * ratio);
    ctx.clip();
    ctx.fillStyle = ctx.strokeStyle = formColor(form);
    const size = form.size * ratio;
    ctx.lineWidth = 1.2 * ratio / size;
    ctx.globalAlpha = form.isFilled || form.lane != null ? 0.85 : 0.75;
    const before = ctx.getTransform();
    for (let place = 0; place < line.x.length; place += 1) {
      const at = line.x[place];
      if (at < view.from || at > view.to) continue;
      const x = plot.valToPos(at, "x", true);
      const y = form.lane != null ? bbox.top + (form.lane + 0.5) * LOST_LANE * ratio : plot.valToPos(line.y[place], "y", true);
      ctx.setTransform(before);
      ctx.translate(x, y);
      ctx.scale(size, size);
      if (form.isFilled) ctx.fill(outline); else ctx.stroke(outline);
    }
    ctx.restore();
    return null;
  };
}

// Shaded from bottom to top: spans of several lines that overlap are darker.
function spansOf(line) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = faded(palette.bad, 0.13);
    for (let place = 0; place < line.x.length; place += 1) {
      const [from, to] = [Math.max(line.x[place], view.from), Math.min(line.y[place], view.to)];
      if (to <= from) continue;
      const left = plot.valToPos(from, "x", true);
      ctx.fillRect(left, bbox.top, Math.max(plot.valToPos(to, "x", true) - left, devicePixelRatio), bbox.height);
    }
    ctx.restore();
    return null;
  };
}

// What stands for a line in the legend.
function swatchOf(line, several) {
  if (line.form) {
    const form = FORMS[line.form];
    const space = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(space, "svg");
    picture.setAttribute("viewBox", "-1.6 -1.6 3.2 3.2");
    picture.setAttribute("class", `symbol ${form.color}`);
    picture.setAttribute("aria-hidden", "true");
    const outline = document.createElementNS(space, "path");
    outline.setAttribute("d", form.path);
    outline.setAttribute(form.isFilled ? "fill" : "stroke", "currentColor");
    if (!form.isFilled) {
      outline.setAttribute("fill", "none");
      outline.setAttribute("stroke-width", "0.4");
    }
    picture.append(outline);
    return picture;
  }
  const swatch = document.createElement("i");
  const name = line.shape === "limit" ? "dashed" : line.shape === "spans" ? "shaded" : `c${line.color % COLORS}`;
  swatch.className = `swatch ${name}`;
  if (several && line.shape !== "limit" && line.shape !== "spans") swatch.classList.add(`dash${line.dash % DASHES.length}`);
  return swatch;
}
