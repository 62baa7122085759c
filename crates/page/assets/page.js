// The page: its data, the switches of runs, theme, size, print.

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const root = document.documentElement;

function fail(what) {
  const place = document.getElementById("error");
  place.textContent = `The page could not be drawn: ${what}`;
  place.hidden = false;
  root.dataset.error = what;
}
window.addEventListener("error", (event) => fail(event.message));

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
    if (isOverTime) {
      isFirst = false;
      view.charts.push(made.plot);
      listen(made.plot);
    }
    drawn.push({ ...made, section });
  }
  return drawn;
}

function fit(drawn, width) {
  for (const { plot, section, height } of drawn) {
    const own = width || section.querySelector(".plot").clientWidth;
    const high = height();
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
