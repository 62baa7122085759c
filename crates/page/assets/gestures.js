// The time in view, which all charts over time share: drag, wheel, pinch, keys.

const view = { end: 1, from: 0, to: 1, charts: [], isMoving: false };

function show(from, to) {
  const least = view.end / 1e5;
  const span = Math.min(Math.max(to - from, least), view.end);
  from = Math.min(Math.max(from, 0), view.end - span);
  view.from = from;
  view.to = from + span;
  view.isMoving = true;
  for (const plot of view.charts) plot.setScale("x", { min: view.from, max: view.to });
  view.isMoving = false;
  document.documentElement.classList.toggle("zoomed", span < view.end * 0.9999);
}

const showAll = () => show(0, view.end);

// Zooms by this factor around a time.
function zoom(factor, around) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

function pan(seconds) {
  show(view.from + seconds, view.to + seconds);
}

const timeAt = (plot, event) => plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, "x");

function onWheel(plot, event) {
  const isZoom = event.ctrlKey || event.metaKey;
  const isPan = Math.abs(event.deltaX) > Math.abs(event.deltaY) && view.to - view.from < view.end;
  if (!isZoom && !isPan) return;
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (isZoom) {
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit / 300))), timeAt(plot, event));
  } else {
    pan(event.deltaX * unit / plot.over.clientWidth * (view.to - view.from));
  }
}

// One finger moves the crosshair, two zoom and pan; up and down scrolls the page.
function onTouch(plot) {
  let before = null;
  const both = (event) => {
    const left = plot.over.getBoundingClientRect().left;
    return [...event.touches].slice(0, 2).map((touch) => touch.clientX - left);
  };
  plot.over.addEventListener("touchmove", (event) => {
    const now = both(event);
    if (now.length === 2 && before && before.length === 2) {
      event.preventDefault();
      const distance = (pair) => Math.max(Math.abs(pair[0] - pair[1]), 20);
      const [old, middle] = [before, now].map((pair) => (pair[0] + pair[1]) / 2);
      const seconds = (view.to - view.from) / plot.over.clientWidth;
      pan((old - middle) * seconds);
      zoom(distance(before) / distance(now), plot.posToVal(middle, "x"));
    } else if (now.length === 1) {
      plot.setCursor({ left: now[0], top: 10 }, true, true);
    }
    before = now;
  }, { passive: false });
  plot.over.addEventListener("touchstart", (event) => { before = both(event); }, { passive: true });
  plot.over.addEventListener("touchend", () => { before = null; });
}

function onKey(plot, event) {
  const span = view.to - view.from;
  const keys = {
    "+": () => zoom(0.5, (view.from + view.to) / 2),
    "=": () => zoom(0.5, (view.from + view.to) / 2),
    "-": () => zoom(2, (view.from + view.to) / 2),
    ArrowLeft: () => pan(-span / 8),
    ArrowRight: () => pan(span / 8),
    0: showAll,
    Escape: showAll,
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

// Gives a chart over time its gestures.
function listen(plot) {
  plot.over.addEventListener("wheel", (event) => onWheel(plot, event), { passive: false });
  onTouch(plot);
  plot.root.tabIndex = 0;
  plot.root.addEventListener("keydown", (event) => onKey(plot, event));
}
