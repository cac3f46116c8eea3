"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const dialog = document.querySelector("dialog");
  let printing = false;

  // One run, or the seeds of one point, in the dialog: copies of what stands at the page's end.
  function show(keys) {
    const content = dialog.querySelector(".content");
    content.replaceChildren();
    for (const key of keys) {
      const run = document.getElementById(key);
      if (run === null) continue;
      const copy = run.cloneNode(true);
      copy.removeAttribute("id");
      copy.open = keys.length === 1;
      content.append(copy);
    }
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#run-"]');
    if (link === null) return;
    event.preventDefault();
    show([link.getAttribute("href").slice(1)]);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  // Tables: by number where cells have one, else by word; what has none stays last.
  for (const table of document.querySelectorAll(".sortable")) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => {
          const cell = row.cells[column];
          return { row, number: cell.dataset.sort, text: cell.textContent };
        });
        const numeric = rows.some(({ number }) => number !== undefined && number !== "");
        rows.sort((a, b) => {
          if (numeric && (a.number === "" || b.number === "")) return (a.number === "") - (b.number === "");
          const order = numeric
            ? Number(a.number) - Number(b.number)
            : a.text.localeCompare(b.text, "en", { numeric: true });
          return up ? order : -order;
        });
        body.append(...rows.map(({ row }) => row));
      });
    });
  }

  // Black lines are white on a dark page; all other colours are read on both.
  function coloured(data, night) {
    return JSON.parse(JSON.stringify(data, (key, value) => {
      if (!night || typeof value !== "string") return value;
      if (value === "#000000") return "#ffffff";
      return key === "fillcolor" ? value.replace("rgba(0,0,0,", "rgba(255,255,255,") : value;
    }));
  }

  function laidOut(plot, figure, night) {
    const ink = night ? "#e6e9ec" : "#1b1f24";
    const grid = night ? "#363c43" : "#e4e7eb";
    const labels = figure.data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name.length);
    const width = plot.clientWidth;
    const label = 6.1 * Math.max(...labels); // pixels of the longest text, estimated
    const perRow = Math.max(1, Math.floor((width - 68) / (label + 45))); // as wide as the panel
    const legend = Math.min(20 * Math.ceil(labels.length / perRow) + 8, 208); // longer ones scroll
    const axis = { gridcolor: grid, linecolor: grid, automargin: true };
    return {
      ...figure.layout,
      xaxis: { ...figure.layout.xaxis, ...axis },
      yaxis: { ...figure.layout.yaxis, ...axis },
      font: { family: "system-ui, sans-serif", size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: true,
      legend: { orientation: "h", x: 0, xanchor: "left", xref: "container", y: 0, yanchor: "bottom", yref: "container", maxheight: legend, tracegroupgap: 0, entrywidth: label, entrywidthmode: "pixels", font: { size: 11 } },
      modebar: { bgcolor: "rgba(0,0,0,0)" },
      margin: { l: 56, r: 12, t: 34, b: 52 + legend }, // the mode bar is above the panel
      height: 362 + legend,
      width,
    };
  }

  function draw(plot) {
    const figure = figures[plot.id];
    const night = dark.matches && !printing;
    const first = plot.dataset.drawn === undefined;
    plot.dataset.drawn = "";
    const config = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    const data = coloured(figure.data, night);
    if (!first) plot.data.forEach((trace, i) => { data[i].visible = trace.visible ?? true; });
    Plotly.react(plot, data, laidOut(plot, figure, night), config);
    if (!first) return;
    plot.on("plotly_click", ({ points: [point] }) => {
      const keys = point.customdata ?? point.data.meta;
      if (keys) show(keys.split(" "));
    });
  }

  const plots = [...document.querySelectorAll(".plot")];
  const again = () => plots.filter((plot) => plot.dataset.drawn !== undefined).forEach(draw);
  const nearby = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearby.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "800px" });
  plots.forEach((plot) => nearby.observe(plot));
  dark.addEventListener("change", again);
  let pause;
  window.addEventListener("resize", () => { clearTimeout(pause); pause = setTimeout(again, 150); });
  window.addEventListener("beforeprint", () => { printing = true; plots.forEach(draw); });
  window.addEventListener("afterprint", () => { printing = false; again(); });
  document.documentElement.dataset.ready = "";
})();
