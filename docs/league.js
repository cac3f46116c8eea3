"use strict";
// The league's figure: quality over bytes or predicted time, from the JSON that docs/site_hook.py puts into the page.
(() => {
  const { latency_seconds: latency, tasks } = JSON.parse(document.getElementById("league-data").textContent);
  const root = document.getElementById("league");
  const BASELINE = "none";
  const state = { task: Object.keys(tasks).at(-1), along: "time", rate: 9, method: "", shown: [] };

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  const digits = (value, count = 3) => Number(value.toPrecision(count)).toLocaleString("en", { maximumSignificantDigits: count });
  function inUnits(value, units) {
    const [size, unit] = units.find(([least]) => value >= least) ?? units[units.length - 1];
    return `${digits(value / size)} ${unit}`;
  }
  const inSeconds = (value) => inUnits(value, [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
  const inBits = (value) => inUnits(value, [[1e9, "Gbit/s"], [1e6, "Mbit/s"]]);
  const inBytes = (value) => inUnits(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);

  // trainers/network_model/step_times.py, without overlap
  function stepSeconds(one) {
    const { compute_seconds: compute } = tasks[state.task];
    return compute + one.compression_seconds + latency * one.rounds + (8 * one.step_bytes) / 10 ** state.rate;
  }
  const trainingSeconds = (one) => tasks[state.task].steps * stepSeconds(one);
  const targetSeconds = (one) => (one.steps_to_target === null ? Infinity : one.steps_to_target * stepSeconds(one));
  const cost = (one) => (state.along === "bytes" ? one.sent_bytes / 1e6 : trainingSeconds(one));
  const isBetter = (one, other) => (tasks[state.task].higher_is_better ? one > other : one < other);

  // Settings with a better quality than all that cost less or as much
  function frontOf(settings) {
    const front = [];
    for (const one of [...settings].sort((a, b) => cost(a) - cost(b) || (isBetter(a.quality[0], b.quality[0]) ? -1 : 1))) {
      if (!front.length || isBetter(one.quality[0], front[front.length - 1].quality[0])) front.push(one);
    }
    return front;
  }

  function hover(one) {
    const target = targetSeconds(one);
    return [
      `<b>${one.method}</b> ${one.setting}`,
      `${tasks[state.task].quality}: ${one.spread}`,
      `${inBytes(one.sent_bytes)} left a worker`,
      `training ${inSeconds(trainingSeconds(one))}, to the target ${Number.isFinite(target) ? inSeconds(target) : "not reached"}`,
    ].join("<br>");
  }

  function trace(settings, name, colour, more = {}) {
    const ends = (index) => settings.map(({ quality }) => Math.abs(quality[index] - quality[0]));
    const [above, below] = [ends(2), ends(1)];
    const bars = { type: "data", symmetric: false, array: above, arrayminus: below, color: colour, thickness: 1, width: 0 };
    return {
      type: "scatter", name, mode: "markers", x: settings.map(cost), y: settings.map(({ quality }) => quality[0]),
      error_y: bars, customdata: settings, hovertext: settings.map(hover), hoverinfo: "text", ...more,
      marker: { color: colour, size: 9, ...more.marker },
    };
  }

  function traces(ink) {
    const { settings } = tasks[state.task];
    const dense = settings.filter(({ method }) => method === BASELINE);
    const compressed = settings.filter(({ method }) => method !== BASELINE);
    const front = frontOf(compressed);
    const named = compressed.filter(({ method }) => method === state.method);
    const grey = trace(compressed, "other settings", "#8c959f", { marker: { size: 7, opacity: 0.55 } });
    return [
      { ...grey, error_y: undefined },
      trace(front, "nothing is better for less", "#1f8fd6", {
        mode: "lines+markers+text", line: { width: 1, shape: "hv" },
        text: front.map(({ method }, i) => (method === front[i - 1]?.method ? "" : method)),
        textposition: "middle right", textfont: { color: "#1f8fd6", size: 11 },
      }),
      ...(named.length ? [trace(named, state.method, "#d55e00", { marker: { size: 11 } })] : []),
      trace(dense, "none (dense training)", ink, { marker: { symbol: "star", size: 14 } }),
    ];
  }

  // A logarithmic axis up to the quality of 19 of 20 settings, because some diverge
  function qualityAxis({ settings, higher_is_better: isLinear }) {
    if (isLinear) return { type: "linear", unseen: 0 };
    const worst = settings.map(({ quality }) => quality[0]).sort((a, b) => a - b)[Math.floor(0.95 * (settings.length - 1))];
    const best = Math.min(...settings.map(({ quality }) => quality[1]));
    const unseen = settings.filter(({ quality }) => quality[0] > worst).length;
    return { type: "log", range: [Math.log10(best / 1.2), Math.log10(worst * 1.2)], unseen };
  }

  function draw() {
    const task = tasks[state.task];
    const { unseen, ...qualities } = qualityAxis(task);
    const along = state.along === "bytes" ? "MB that left a worker" : "predicted time of the training, s";
    const style = getComputedStyle(document.body);
    const ink = style.color, grid = style.getPropertyValue("--md-default-fg-color--lightest") || "#ddd";
    const axis = { gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, exponentformat: "SI" };
    const layout = {
      font: { family: "inherit", color: ink, size: 12 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 50, r: 12, t: 8, b: 40 }, height: 460, hovermode: "closest", dragmode: false, showlegend: true,
      // without a width of its own, plotly cuts the widest entry on a narrow screen
      legend: { orientation: "h", x: 0, y: -0.18, yanchor: "top", entrywidth: 165 },
      xaxis: { ...axis, type: "log", title: { text: along } },
      yaxis: { ...axis, ...qualities, title: { text: task.quality }, exponentformat: "power" },
    };
    Plotly.react(plot, traces(ink), layout, { displayModeBar: false, responsive: true });
    rateText.textContent = inBits(10 ** state.rate);
    about.textContent = `${task.description[0].toUpperCase()}${task.description.slice(1)}. ${task.workers} hosts, one for ` +
      `each worker. Computation takes ${inSeconds(task.compute_seconds)} a step.` +
      (unseen ? ` ${unseen} worse ${unseen === 1 ? "setting is" : "settings are"} not shown.` : "");
    first.textContent = firstWords(task);
    panel.replaceChildren(...state.shown.map(details));
  }

  // The first methods at the target quality, each with its fastest setting
  function firstWords(task) {
    const fastest = new Map();
    for (const one of task.settings) {
      if (targetSeconds(one) < targetSeconds(fastest.get(one.method) ?? { steps_to_target: null })) fastest.set(one.method, one);
    }
    const order = [...fastest.values()].sort((a, b) => targetSeconds(a) - targetSeconds(b));
    const said = (one) => `${one.method} (${inSeconds(targetSeconds(one))})`;
    const place = order.findIndex(({ method }) => method === BASELINE);
    return `At ${inBits(10 ** state.rate)}, the target (${task.quality}: ${digits(task.target, 4)}) is reached first by ` +
      `${order.slice(0, 3).map(said).join(", ")}; dense training takes ${inSeconds(targetSeconds(order[place]))}, ` +
      `place ${place + 1} of ${order.length}.`;
  }

  function details(one) {
    const { compute_seconds: compute, quality } = tasks[state.task];
    const link = latency * one.rounds + (8 * one.step_bytes) / 10 ** state.rate;
    const facts = `${quality}: ${one.spread}. ${inBytes(one.sent_bytes)} left a worker. Step: computation ` +
      `${inSeconds(compute)}, compression ${inSeconds(one.compression_seconds)}, link ${inSeconds(link)}.`;
    return element("div", {},
      element("p", {}, element("strong", { textContent: one.method }), ` ${one.setting}. ${facts}`),
      element("pre", {}, element("code", { textContent: one.command })));
  }

  function choices(legend, name, options, chosen, change) {
    const labels = options.map(([value, text]) => {
      const input = element("input", { type: "radio", name, value, checked: value === chosen });
      input.addEventListener("change", () => change(value));
      return element("label", {}, input, ` ${text}`);
    });
    return element("fieldset", {}, element("legend", { textContent: legend }), ...labels);
  }

  function methodNames() {
    const names = [...new Set(tasks[state.task].settings.map(({ method }) => method))].sort();
    return [["", "none highlighted"], ...names.map((name) => [name, name])];
  }

  function show(method, shown) {
    state.method = method;
    state.shown = shown;
    select.value = method;
    draw();
  }
  const settingsOf = (method) => tasks[state.task].settings.filter((one) => one.method === method);

  function refill() {
    select.replaceChildren(...methodNames().map(([value, text]) => element("option", { value, textContent: text })));
    show(settingsOf(state.method).length ? state.method : "", settingsOf(state.method));
  }

  const plot = element("div", { id: "league-figure" });
  const rateText = element("output");
  const powers = { min: 6, max: 11, step: 0.05, value: state.rate };
  const slider = element("input", { type: "range", ...powers, id: "league-rate", ariaLabel: "Bandwidth" });
  const select = element("select", { id: "league-method", ariaLabel: "Method" });
  const [about, first, panel] = [element("p"), element("p", { id: "league-first" }), element("div", { id: "league-details" })];
  slider.addEventListener("input", () => { state.rate = Number(slider.value); draw(); });
  select.addEventListener("change", () => show(select.value, settingsOf(select.value)));
  root.replaceChildren(
    choices("Task", "league-task", Object.keys(tasks).map((name) => [name, name]), state.task, (value) => {
      state.task = value;
      refill();
    }),
    choices("Horizontal axis", "league-along", [["time", "predicted time"], ["bytes", "link bytes"]], state.along, (value) => {
      state.along = value;
      draw();
    }),
    element("fieldset", {}, element("legend", { textContent: "Bandwidth of each host" }), slider, rateText),
    element("fieldset", {}, element("legend", { textContent: "Method" }), select),
    about, first, plot, panel,
  );
  refill();
  plot.on("plotly_click", ({ points: [{ customdata }] }) => show(customdata.method, [customdata]));
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  root.dataset.ready = "";
})();
