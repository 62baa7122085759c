"use strict";
(() => {
  const root = document.documentElement;
  const value = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const colour = (name) => value(name) || value("ink");

  const translucent = (hex, alpha) => {
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${alpha})`;
  };

  // "@pert" and "@pert:0.14" stand for colours of the palette in force.
  const painted = (value) => {
    if (typeof value === "string" && value[0] === "@") {
      const [name, alpha] = value.slice(1).split(":");
      return alpha ? translucent(colour(name), alpha) : colour(name);
    }
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, painted(part)]));
    }
    return value;
  };

  const axis = (own) => ({
    gridcolor: "@grid", linecolor: "@rule", tickcolor: "@rule", zeroline: false, showline: false,
    tickfont: { size: 12, color: "@quiet" }, automargin: true, fixedrange: coarse, ...own,
  });
  const coarse = matchMedia("(pointer: coarse)").matches;

  const layout = (own) => ({
    ...own,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colour("sans"), size: 12.5, color: "@ink" },
    margin: { l: 8, r: 14, t: 10, b: 8 },
    showlegend: false, hovermode: "x unified", dragmode: coarse ? false : "zoom",
    hoverlabel: { bgcolor: "@surface", bordercolor: "@rule", font: { size: 12.5, color: "@ink" } },
    xaxis: axis({ showgrid: false, showline: true, ticks: "outside", ...own.xaxis }),
    yaxis: axis(own.yaxis),
  });

  // "?figure=pert-fig9" leaves one claim's title and plot on the page, for a picture of it.
  const alone = document.getElementById(new URLSearchParams(location.search).get("figure") ?? "");
  if (alone) {
    document.body.classList.add("alone");
    alone.classList.add("chosen");
  }

  const figures = [...document.querySelectorAll("figure[data-figure]")].map((node) => {
    const data = JSON.parse(document.getElementById(node.dataset.figure).textContent);
    const plot = node.querySelector(".plot");
    const select = node.querySelector("select");
    const hidden = new Set();
    const draw = () => {
      const traces = data.views[select ? select.selectedIndex : 0].map((trace) => ({
        ...trace, visible: !hidden.has(trace.legendgroup),
      }));
      Plotly.react(plot, painted(traces), painted(layout(data.layout)), {
        displayModeBar: false, responsive: true, doubleClick: "reset",
      });
    };
    if (select) select.addEventListener("change", draw);
    node.querySelectorAll(".legend button").forEach((button) => {
      button.addEventListener("click", () => {
        const name = button.dataset.series;
        if (!hidden.delete(name)) hidden.add(name);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        draw();
      });
    });
    return { plot, draw, drawn: false };
  });

  // A page may hold dozens of plots: each is drawn as it comes near.
  const show = (figure) => {
    if (figure.drawn) return;
    figure.drawn = true;
    near.unobserve(figure.plot);
    figure.draw();
  };
  const near = new IntersectionObserver((entries) => {
    const close = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
    figures.filter(({ plot }) => close.includes(plot)).forEach(show);
  }, { rootMargin: "800px" });
  figures.forEach((figure) => {
    near.observe(figure.plot);
    if (figure.plot.getBoundingClientRect().top < innerHeight) show(figure);
  });
  addEventListener("beforeprint", () => figures.forEach(show));
  const redraw = () => figures.filter(({ drawn }) => drawn).forEach(({ draw }) => draw());

  const dress = (theme) => { root.dataset.theme = theme; redraw(); };
  document.querySelector(".theme").addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", theme); } catch { /* then for this page only */ }
    dress(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    let chosen = null;
    try { chosen = localStorage.getItem("theme"); } catch { /* the system decides */ }
    if (!chosen) dress(event.matches ? "dark" : "light");
  });

  const filter = document.querySelector(".filter");
  if (filter) {
    const rows = [...document.querySelectorAll(".verdicts tbody tr")];
    const [chips, paper, search, told] = [
      [...filter.querySelectorAll("button")], ...["select", "input", "output"].map((one) => filter.querySelector(one)),
    ];
    const words = rows.map((row) => row.textContent.toLowerCase());
    const sift = () => {
      const wanted = chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.dataset.verdict);
      const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row, index) => {
        row.hidden = (wanted.length > 0 && !wanted.includes(row.dataset.verdict))
          || (paper.value !== "" && paper.value !== row.dataset.paper)
          || !asked.every((word) => words[index].includes(word));
      });
      told.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    };
    chips.forEach((chip) => chip.addEventListener("click", () => {
      chip.ariaPressed = String(chip.ariaPressed !== "true");
      sift();
    }));
    paper.addEventListener("change", sift);
    search.addEventListener("input", sift);
    filter.addEventListener("submit", (event) => event.preventDefault());
    sift();
  }

  document.querySelectorAll(".command button").forEach((button) => {
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  });
})();
