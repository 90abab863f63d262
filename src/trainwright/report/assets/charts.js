// Figures and timelines drawn with ECharts, on pages of the server and in reports alike.
// Each function takes an element and a plain value, and returns the chart so that it can be resized or replaced.
"use strict";

const Charts = (() => {
  // Okabe and Ito (2008): told apart also by the colour-blind.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A5A00", "#6E6E6E", "#F0E442", "#882255", "#44AA99", "#AA4499", "#999933"]; // the last four: Tol (2021)
  const CELLS = {
    F: "#0072B2", N: "#56B4E9", R: "#8A5A00", B: "#009E73", I: "#44AA99", W: "#7FBF7B", S: "#CC79A7", "+": "#999999",
    t: "#D55E00", c: "#E69F00", e: "#F0E442", p: "#882255", d: "#AA4499", o: "#6E6E6E",
  };
  const charts = new Map(); // each with what draws it again, for another width

  const dark = () => document.documentElement.dataset.theme === "dark";
  const ink = () => (dark() ? "#e6e6e6" : "#222222");
  const faint = () => (dark() ? "#3a3f47" : "#dddddd");

  function si(value, unit = "") {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    if (value === 0) return `0 ${unit}`.trim();
    const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
    const [scale, prefix] = prefixes.find(([each]) => Math.abs(value) >= each * 0.9995) || prefixes[prefixes.length - 1];
    return `${Number((value / scale).toPrecision(3))} ${prefix}${unit}`.trim();
  }
  const seconds = (value) => (value >= 1000 ? `${Math.round(value)} s` : si(value, "s"));
  const number = (value, percent) =>
    value === null || value === undefined ? "–" : value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential(2) : percent ? `${(100 * value).toPrecision(3)} %` : value.toLocaleString("en", { maximumSignificantDigits: 4 });

  // Numbers along an axis: as people write them, with a prefix only where they are long.
  const plain = (value) => (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4) ? si(value) : value.toLocaleString("en", { maximumSignificantDigits: 6 }));
  // The end of an axis above a value, and its steps.
  function upTo(value) {
    const power = 10 ** Math.floor(Math.log10(value / 5)), step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each * 5 >= value);
    return { max: Math.ceil(value * 1.001 / step) * step, interval: step };
  }

  function open(element, again) {
    const old = echarts.getInstanceByDom(element);
    if (old) { charts.delete(old); old.dispose(); }
    const chart = echarts.init(element, null, { renderer: "canvas" });
    charts.set(chart, { width: element.clientWidth, again });
    element.setAttribute("role", "img");
    return chart;
  }

  const text = () => ({ color: ink(), fontFamily: "system-ui, sans-serif" });
  const tooltip = (formatter, trigger = "item") => ({
    trigger, renderMode: "richText", confine: true, formatter,
    backgroundColor: dark() ? "#1c2026" : "#ffffff", textStyle: { color: ink(), fontSize: 12 },
  });

  // How names fit below bars or lines: "flat", "turned", or, of bars, "beside" them.
  const wide = (name) => 6.8 * name.length + 8;
  function placing(names, across, bars) {
    const longest = Math.max(...names.map(wide));
    if (longest < across / names.length - 6) return "flat";
    return bars ? "beside" : "turned";
  }

  function nameAxis(spec, names, how, across) {
    const label = { color: ink(), interval: 0, fontSize: 11, hideOverlap: false };
    const common = { type: "category", data: names, nameTextStyle: text(), axisLine: { lineStyle: { color: ink() } }, axisTick: { show: false } };
    if (how === "beside") return { ...common, inverse: true, axisLabel: { ...label, width: Math.min(Math.max(...names.map(wide)), 0.42 * across), overflow: "break", lineHeight: 13 } };
    const turned = how === "turned" ? { rotate: across / names.length < 40 ? 50 : 24, width: 120, overflow: "truncate" } : {};
    return { ...common, name: spec.title, nameLocation: "middle", nameGap: how === "turned" ? 74 : 32, axisLabel: { ...label, ...turned } };
  }

  function valueAxis(spec, values, vertical, fromZero) {
    const shown = spec.percent ? (v) => `${plain(100 * v)} %` : plain;
    const common = {
      name: spec.title, nameLocation: "middle", nameGap: vertical ? 54 : 32, nameTextStyle: text(),
      axisLabel: { color: ink(), formatter: shown, hideOverlap: true },
      splitLine: { lineStyle: { color: faint() } }, axisLine: { lineStyle: { color: ink() } },
    };
    if (!spec.log) return { ...common, type: "value", scale: !fromZero };
    const range = Math.max(...values) / Math.min(...values.filter((each) => each > 0));
    if (vertical && range < 4) return { ...common, type: "value", scale: true }; // no power within it
    return { ...common, type: "log", logBase: range < (vertical ? 300 : 2 ** 14) && Math.min(...values.filter((each) => each > 0)) >= 0.25 ? 2 : 10 };
  }

  function bands(figure, beside) {
    const along = beside ? "xAxis" : "yAxis";
    return (figure.bands || []).map((band, index) => ({
      type: "line", name: band.name, data: [], silent: true, color: band.low === band.high ? ink() : COLOURS[index % COLOURS.length],
      markLine: band.low === band.high ? {
        symbol: "none", lineStyle: { color: ink(), type: "dashed", width: 2 }, data: [{ [along]: band.low }],
        label: { formatter: `${band.name} ${number(band.low, figure.y.percent)}`, position: beside ? "start" : "insideEndTop", color: ink() },
      } : undefined,
      markArea: band.low === band.high ? undefined : {
        itemStyle: { color: COLOURS[index % COLOURS.length], opacity: 0.12 }, data: [[{ [along]: band.low }, { [along]: band.high }]],
      },
    }));
  }

  // A line that is the limit of what is stacked must be seen: the axis goes so far.
  function reach(figure) {
    const limits = (figure.bands || []).filter((each) => each.low === each.high).map((each) => each.low);
    if (!limits.length || figure.y.log || figure.y.percent) return {};
    const stacked = figure.series.length && figure.series.every((each) => each.kind === "stack");
    const tops = stacked ? figure.series[0].y.map((_, index) => figure.series.reduce((sum, each) => sum + each.y[index], 0)) : figure.series.flatMap((each) => each.y);
    return upTo(Math.max(...limits, ...tops));
  }

  function draw(element, figure) {
    if (figure.grid) return drawGrid(element, figure);
    const names = figure.series.length ? figure.series[0].x : [], named = typeof names[0] === "string";
    const across = element.clientWidth || 600, bars = figure.series.every((each) => each.kind === "bars" || each.kind === "stack");
    const how = named ? placing(names, across - 98, bars) : "", beside = how === "beside";
    const lines = Math.ceil(Math.max(0, ...names.map((each) => (named ? wide(each) : 0))) / (0.42 * across)), side = new Set(figure.series.map((each) => each.kind === "stack" ? "" : each.name)).size;
    element.style.height = beside ? `${112 + names.length * Math.max(24, 14 * lines + 6, 12 * side + 10)}px` : "";
    const chart = open(element, () => draw(element, figure));
    const few = across < 600 && !figure.x.log ? { splitNumber: 3 } : {}, room = figure.series.some((each) => each.labelled) ? { boundaryGap: ["15%", "15%"] } : {};
    const values = { ...(beside ? few : {}), ...valueAxis(figure.y, figure.series.flatMap((each) => each.y), !beside, true), ...reach(figure) };
    const along = named ? nameAxis(figure.x, names, how, across) : { ...few, ...room, ...valueAxis(figure.x, figure.series.flatMap((each) => each.x), false, false) };
    chart.setOption({
      animation: false, color: COLOURS, textStyle: text(), aria: { enabled: true },
      grid: beside ? { left: along.axisLabel.width + 14, right: 30, top: 56, bottom: 48 } : { left: 76, right: 26, top: 56, bottom: how === "turned" ? 104 : 58 },
      legend: { type: "scroll", top: 4, textStyle: text(), pageTextStyle: text(), pageIconColor: ink(), pageIconInactiveColor: faint() },
      tooltip: tooltip((p) => `${p.seriesName}\n${p.name || figure.x.title + " " + number(p.value[0], figure.x.percent)}\n${figure.y.title} ${number(Array.isArray(p.value) ? p.value[1] : p.value, figure.y.percent)}`),
      xAxis: beside ? values : along, yAxis: beside ? along : values,
      series: [...figure.series.map((each) => ({
        name: each.name, type: each.kind === "line" ? "line" : each.kind === "points" ? "scatter" : "bar",
        stack: each.kind === "stack" ? "all" : undefined, symbolSize: each.labelled ? 12 : 7, barMaxWidth: 60,
        label: each.labelled && across >= 600 ? { show: true, formatter: each.name, position: "top", color: ink(), width: 150, overflow: "break", lineHeight: 13 } : undefined,
        data: named ? each.y : each.x.map((x, index) => [x, each.y[index]]),
      })), ...bands(figure, beside)],
    });
    return chart;
  }

  function drawGrid(element, figure) {
    const chart = open(element, () => drawGrid(element, figure)), grid = figure.grid, cells = [], across = element.clientWidth || 600;
    grid.values.forEach((row, y) => row.forEach((value, x) => { if (value !== null) cells.push([x, y, value]); }));
    const values = cells.map((each) => each[2]), left = Math.min(Math.max(...grid.rows.map(wide)) + 44, 0.4 * across), how = placing(grid.columns, across - left - (across < 600 ? 16 : 136), false);
    const room = (across - left - (across < 600 ? 16 : 136)) / grid.columns.length >= 40;
    chart.setOption({
      animation: false, textStyle: text(), grid: { left, right: across < 600 ? 16 : 136, top: across < 600 ? 70 : 24, bottom: how === "turned" ? 100 : 56 }, aria: { enabled: true },
      tooltip: tooltip((p) => `${figure.x.title} ${grid.columns[p.value[0]]}\n${figure.y.title} ${grid.rows[p.value[1]]}\n${grid.title} ${number(p.value[2], grid.percent)}`),
      xAxis: nameAxis(figure.x, grid.columns, how, across - left - (across < 600 ? 16 : 136)),
      yAxis: { ...nameAxis(figure.y, grid.rows, "flat", across), name: figure.y.title, nameGap: left - 18, axisLabel: { color: ink(), fontSize: 11, interval: 0, width: left - 40, overflow: "break" } },
      visualMap: {
        min: Math.min(...values), max: Math.max(...values), calculable: true, textStyle: { ...text(), lineHeight: 15 }, formatter: (v) => number(v, grid.percent),
        ...(across < 600 ? { orient: "horizontal", left: "center", top: 2, itemHeight: 120 } : { orient: "vertical", right: 4, top: "middle", text: [fold(grid.title, 16), ""] }),
        inRange: { color: ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"] },
      },
      series: [{ type: "heatmap", data: cells, label: { show: room && cells.length <= 200, formatter: (p) => number(p.value[2], grid.percent) } }],
    });
    return chart;
  }
  const fold = (words, most) => words.split(" ").reduce((lines, word) => { const last = lines[lines.length - 1]; if (last && (last + word).length < most) lines[lines.length - 1] = `${last} ${word}`; else lines.push(word); return lines; }, []).join("\n");

  function drawTimeline(element, blocks) {
    const lanes = blocks.lanes.length, narrow = element.clientWidth < 600;
    const names = blocks.lanes.map(([place, name]) => (name !== "compute" ? name : narrow ? blocks.places[place] : `${blocks.places[place]} · compute`));
    const data = blocks.cell.map((cell, index) => [blocks.start_s[index], blocks.end_s[index], blocks.lane[index], cell, blocks.microbatch[index], blocks.busy[index]]);
    const legend = Object.entries(blocks.cells).map(([cell, meaning]) => ({ cell, name: (cell === cell.toLowerCase() && cell !== "+" && cell !== "x" ? "communication: " : "") + meaning }));
    element.style.height = `${Math.max(180, 106 + 20 * lanes)}px`;
    const chart = open(element, () => drawTimeline(element, blocks));
    const colour = (cell) => (cell === "x" ? ink() : cell === "p" && dark() ? "#d0608f" : CELLS[cell]);
    chart.setOption({
      animation: false, textStyle: text(), aria: { enabled: true, label: { description: `Timeline of a step of ${seconds(blocks.step_s)}` } },
      grid: { left: margin(element), right: 20, top: 34, bottom: 74 }, legend: { top: 2, type: "scroll", textStyle: text(), pageTextStyle: text(), pageIconColor: ink(), pageIconInactiveColor: faint(), data: legend.map((each) => each.name) },
      tooltip: tooltip((p) => {
        const [start, end, lane, cell, microbatch, busy] = p.value;
        return `${names[lane]}: ${blocks.cells[cell]}\n${microbatch >= 0 ? "microbatch " + microbatch : "once a step"}\n${seconds(start)} to ${seconds(end)}, ${seconds(end - start)} long\nbusy ${Math.round(100 * busy)} %`;
      }),
      dataZoom: [{ type: "slider", height: 18, bottom: 8, filterMode: "weakFilter", labelFormatter: (v) => seconds(v), textStyle: text() }, { type: "inside", filterMode: "weakFilter" }],
      xAxis: { type: "value", min: 0, max: blocks.step_s, name: "time in the step", nameLocation: "middle", nameGap: 24, nameTextStyle: text(), axisLabel: { color: ink(), hideOverlap: true, formatter: (v) => seconds(v) }, splitLine: { lineStyle: { color: faint() } } },
      yAxis: { type: "category", inverse: true, data: names, axisLabel: { color: ink(), fontSize: 10, width: margin(element) - 18, overflow: "truncate", interval: 0 }, splitLine: { show: true, lineStyle: { color: faint() } } },
      series: legend.map(({ cell, name }) => ({
        type: "custom", name, color: colour(cell), encode: { x: [0, 1], y: 2 }, data: data.filter((each) => each[3] === cell), progressive: 0, clip: true,
        renderItem: (params, api) => {
          const from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]);
          const tall = api.size([0, 1])[1] * 0.84, height = Math.max(tall * api.value(5), 2);
          const shape = echarts.graphic.clipRectByRect(
            { x: from[0], y: from[1] + tall / 2 - height, width: Math.max(to[0] - from[0], 0.7), height },
            { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
          const opacity = Math.max(Math.min(Math.sqrt((to[0] - from[0]) / 0.7), 1), 0.35); // what is narrower than can be drawn is fainter: many of it are not all of the time
          return shape && { type: "rect", shape, style: { opacity, fill: colour(cell), stroke: dark() ? "#12151a" : "#ffffff", lineWidth: to[0] - from[0] > 5 ? 0.5 : 0 } };
        },
      })),
    });
    byKeys(element);
    return chart;
  }
  // Room for names of lanes: the same above and below, so that moments stand above each other.
  const margin = (element) => (element.clientWidth < 600 ? 92 : 168);

  // Arrows move, + and - zoom, 0 shows all.
  function byKeys(element) {
    if (element.dataset.keys) return;
    element.dataset.keys = "1";
    element.addEventListener("keydown", (event) => {
      const chart = echarts.getInstanceByDom(element), { start, end } = chart.getOption().dataZoom[0], size = end - start;
      const move = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5], 0: [-100, 100] }[event.key];
      if (!move || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      let from = start + move[0] * size, to = end + move[1] * size;
      if (move[0] === move[1]) { const over = Math.min(0, from) + Math.max(0, to - 100); from -= over; to -= over; }
      chart.dispatchAction({ type: "dataZoom", start: Math.max(0, from), end: Math.min(100, to) });
    });
  }
  // What is zoomed in one is zoomed in the other.
  function follow(leader, element) {
    leader.on("dataZoom", () => {
      const chart = echarts.getInstanceByDom(element), { start, end } = leader.getOption().dataZoom[0];
      if (chart) chart.dispatchAction({ type: "dataZoom", start, end });
    });
  }

  function drawMemory(element, blocks, place, capacityBytes, above) {
    const leader = above && echarts.getInstanceByDom(above), zoomed = leader ? leader.getOption().dataZoom[0] : { start: 0, end: 100 };
    const chart = open(element, () => drawMemory(element, blocks, place, capacityBytes, above)), held = blocks.memory.find((each) => each.place === place), gib = 2 ** 30;
    const kinds = Object.values(held ? held.category_bytes : {}), most = Math.max(1e-6, ...(held ? held.time_s : []).map((_, at) => kinds.reduce((sum, each) => sum + each[at], 0) / gib));
    chart.setOption({
      animation: false, color: COLOURS, textStyle: text(), grid: { left: margin(element), right: 20, top: 40, bottom: 48 }, aria: { enabled: true },
      legend: { top: 2, type: "scroll", textStyle: text() },
      tooltip: tooltip((points) => [seconds(points[0].value[0]), ...points.map((p) => `${p.seriesName} ${p.value[1].toFixed(2)} GiB`)].join("\n"), "axis"),
      dataZoom: [{ type: "inside", filterMode: "none", start: zoomed.start, end: zoomed.end }],
      xAxis: { type: "value", min: 0, max: blocks.step_s, name: "time in the step", nameLocation: "middle", nameGap: 26, nameTextStyle: text(), splitLine: { lineStyle: { color: faint() } }, axisLabel: { color: ink(), hideOverlap: true, formatter: (v) => seconds(v) } },
      yAxis: { type: "value", name: "GiB", nameLocation: "middle", nameGap: 44, nameTextStyle: text(), axisLabel: { color: ink() }, splitLine: { lineStyle: { color: faint() } }, ...upTo(Math.max(most, (capacityBytes || 0) / gib)) },
      series: Object.entries(held ? held.category_bytes : {}).map(([name, values], index) => ({
        name, type: "line", stack: "all", areaStyle: { opacity: 0.8 }, lineStyle: { width: 0 }, symbol: "none", step: "end",
        data: values.map((value, at) => [held.time_s[at], value / gib]),
        markLine: index === 0 && capacityBytes ? { symbol: "none", lineStyle: { color: ink(), type: "dashed" }, data: [{ yAxis: capacityBytes / gib }], label: { formatter: `capacity ${(capacityBytes / gib).toFixed(0)} GiB`, position: "insideEndTop", color: ink() } } : undefined,
      })),
    });
    if (leader) follow(leader, element);
    return chart;
  }

  // Another width may need another layout.
  function resize() {
    for (const [chart, { width, again }] of [...charts]) {
      const element = chart.getDom();
      if (!element.isConnected) { charts.delete(chart); chart.dispose(); } else if (element.clientWidth && element.clientWidth !== width) again();
    }
  }
  let soon = 0;
  window.addEventListener("resize", () => { clearTimeout(soon); soon = setTimeout(resize, 100); });
  const forget = (element) => { const chart = echarts.getInstanceByDom(element); if (chart) { charts.delete(chart); chart.dispose(); } };
  return { draw, drawTimeline, drawMemory, forget, resize, si, seconds, number, COLOURS };
})();
