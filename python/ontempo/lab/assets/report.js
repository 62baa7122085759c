"use strict";
(() => {
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

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
    draw();
    return draw;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures.forEach((draw) => draw()));

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
