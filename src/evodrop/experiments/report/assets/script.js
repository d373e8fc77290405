"use strict";
// Draws the plots of the page from its data, follows light and dark, and turns the sections into tabs.
(() => {
  const plots = new Map(JSON.parse(document.getElementById("plots").textContent).map((plot) => [plot.id, plot]));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 600px)");
  const drawn = new Set();
  const chosen = new Map(); // which map of a plot is shown

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads some HTML in names, so what comes from records is escaped.
  const text = (words) => words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const faded = (hex) => `${hex}2e`;

  function traces(plot) {
    return plot.lines.flatMap((line) => {
      const ink = dark.matches ? line.dark : line.light;
      const own = { x: line.x, legendgroup: text(line.label), mode: "lines" };
      const mean = {
        ...own, y: line.y, name: text(line.label), line: { color: ink, width: 2, dash: line.dashed ? "dash" : "solid" },
        hovertemplate: `%{y:${plot.percent ? ".2%" : ".4g"}}`,
      };
      if (!line.low) return [mean];
      const edge = { ...own, line: { width: 0 }, showlegend: false, hoverinfo: "skip" };
      return [{ ...edge, y: line.low }, { ...edge, y: line.high, fill: "tonexty", fillcolor: faded(ink) }, mean];
    });
  }

  function heat(plot) {
    const map = plot.maps[chosen.get(plot.id) ?? plot.shown];
    const ticks = [0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 1000];
    return [{
      type: "heatmap", x: map.x, y: map.y, z: map.z, colorscale: "Cividis", hoverongaps: false,
      customdata: map.z.map((row) => row.map((power) => (power === null ? null : 10 ** power))),
      hovertemplate: `${plot.clock}: %{x:,}<br>weaker units: %{y:.0f}%<br>%{customdata:.3g} times the mean<extra></extra>`,
      colorbar: { tickvals: ticks.map(Math.log10), ticktext: ticks.map(String), outlinewidth: 0, thickness: 12 },
    }];
  }

  function ranks(plot) {
    return plot.rows.flatMap((row) => {
      const ink = dark.matches ? row.dark : row.light;
      const [mean, low, high] = row.interval;
      const own = { y: [text(row.label)], mode: "markers", name: text(row.label), hovertemplate: "%{x:.2%}" };
      const bar = low === null ? {} : { error_x: {
        type: "data", symmetric: false, array: [high - mean], arrayminus: [mean - Math.max(low, 0)], color: ink, width: 0,
      } };
      return [
        { ...own, ...bar, x: [mean], marker: { color: ink, size: 14, symbol: "line-ns", line: { color: ink, width: 3 } } },
        { ...own, x: row.seeds, y: row.seeds.map(() => own.y[0]), marker: { color: ink, size: 7, opacity: 0.7 } },
      ];
    });
  }

  function ranksLayout(plot, common, grid) {
    const baseline = plot.rows.find((row) => row.baseline && row.interval[0] !== null);
    const at = baseline && { type: "line", yref: "paper", y0: 0, y1: 1, x0: baseline.interval[0], x1: baseline.interval[0] };
    return {
      ...common, hovermode: "closest", showlegend: false, shapes: at ? [{ ...at, line: { color: colour("--soft"), width: 1 } }] : [],
      xaxis: { ...grid, tickformat: "~%" },
      yaxis: { ...grid, type: "category", autorange: "reversed" },
    };
  }

  const DECADES = [-5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)).concat(1);
  const box = document.getElementById("logarithmic");
  const logarithmic = (plot) => box.checked && Boolean(plot.top);

  function layout(plot) {
    const grid = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
    const range = plot.maps ? [0, 100] : [0, plot.top];
    const common = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--text"), family: getComputedStyle(document.body).fontFamily, size: 13 },
      margin: { t: narrow.matches ? 8 : 32, r: 12, b: 8, l: 8 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
      hoverlabel: { bgcolor: colour("--box"), font: { color: colour("--text") } },
    };
    if (plot.rows) return ranksLayout(plot, common, grid);
    return {
      ...common,
      hovermode: plot.maps ? "closest" : "x unified",
      showlegend: !plot.maps,
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
      xaxis: { ...grid, title: { text: plot.clock }, tickformat: "~s" },
      yaxis: plot.maps
        ? { ...grid, title: { text: "units, weakest to strongest" }, ticksuffix: "%", range }
        : logarithmic(plot)
        ? { ...grid, tickformat: "~%", type: "log", tickvals: DECADES }
        : { ...grid, tickformat: plot.percent ? "~%" : "", rangemode: "tozero", ...(plot.top ? { range } : {}) },
    };
  }

  function draw(id) {
    const plot = plots.get(id);
    const buttons = [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]]; // none that sends data
    const options = { responsive: true, displaylogo: false, displayModeBar: !narrow.matches, modeBarButtons: buttons };
    document.getElementById(id).style.height = plot.rows
      ? `${70 + 26 * plot.rows.length}px`
      : `${420 + 36 * Math.max(0, plot.lines.length - 6)}px`; // room for names
    drawn.add(id);
    return Plotly.react(id, plot.rows ? ranks(plot) : plot.maps ? heat(plot) : traces(plot), layout(plot), options);
  }

  const tabs = [...document.querySelectorAll("nav a")];
  const sectionOf = (tab) => document.getElementById(tab.hash.slice(1));
  function show(tab, focus) {
    for (const other of tabs) {
      const open = other === tab;
      other.setAttribute("aria-selected", String(open));
      other.tabIndex = open ? 0 : -1;
      sectionOf(other).hidden = !open;
    }
    if (focus) tab.focus();
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    for (const place of sectionOf(tab).querySelectorAll(".plot")) {
      if (drawn.has(place.id)) Plotly.Plots.resize(place); // the window may have changed while it was hidden
      else draw(place.id);
    }
  }

  // Without this script the page is one long page with links to its sections.
  document.querySelector("nav").setAttribute("role", "tablist");
  tabs.forEach((tab, position) => {
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", sectionOf(tab).id);
    sectionOf(tab).setAttribute("role", "tabpanel");
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", tab.hash);
      show(tab, false);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(tabs[(position + step + tabs.length) % tabs.length], true);
      if (event.key === " ") { event.preventDefault(); tab.click(); }
    });
  });
  for (const select of document.querySelectorAll("select[data-plot]")) {
    select.addEventListener("change", () => {
      chosen.set(select.dataset.plot, Number(select.value));
      draw(select.dataset.plot);
    });
  }
  box.addEventListener("change", () => [...drawn].filter((id) => plots.get(id).top).forEach(draw));
  for (const query of [dark, narrow]) query.addEventListener("change", () => [...drawn].forEach(draw));
  show(tabs.find((tab) => tab.hash === location.hash) ?? tabs[0], false);
})();
