// Figures and timelines drawn with ECharts, on pages of the server and in reports alike.
// Each function takes an element and a plain value, and returns the chart so that it can be resized or replaced.
"use strict";

const Charts = (() => {
  // Okabe and Ito (2008): told apart also by the colour-blind.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A5A00", "#6E6E6E", "#F0E442"];
  const CELLS = {
    F: "#0072B2", N: "#56B4E9", R: "#8A5A00", B: "#009E73", I: "#44AA99", W: "#7FBF7B", S: "#CC79A7", "+": "#999999",
    t: "#D55E00", c: "#E69F00", e: "#F0E442", p: "#882255", d: "#AA4499", o: "#6E6E6E",
  };
  const charts = new Set();

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
    value === null || value === undefined ? "–" : percent ? `${(100 * value).toPrecision(3)} %` : `${Number(value.toPrecision(4)).toLocaleString("en")}`;

  function open(element) {
    const old = echarts.getInstanceByDom(element);
    if (old) { charts.delete(old); old.dispose(); }
    const chart = echarts.init(element, null, { renderer: "canvas" });
    charts.add(chart);
    element.setAttribute("role", "img");
    return chart;
  }

  const text = () => ({ color: ink(), fontFamily: "system-ui, sans-serif" });
  const tooltip = (formatter, trigger = "item") => ({
    trigger, renderMode: "richText", confine: true, formatter,
    backgroundColor: dark() ? "#1c2026" : "#ffffff", textStyle: { color: ink(), fontSize: 12 },
  });

  function axis(spec, values, vertical) {
    const common = {
      name: spec.title, nameLocation: "middle", nameGap: vertical ? 52 : 34, nameTextStyle: text(),
      axisLabel: { color: ink(), formatter: spec.percent ? (v) => `${Number((100 * v).toPrecision(3))} %` : undefined },
      splitLine: { lineStyle: { color: faint() } }, axisLine: { lineStyle: { color: ink() } },
    };
    if (values && typeof values[0] === "string") {
      common.axisLabel = { color: ink(), interval: 0, rotate: 24, width: 150, overflow: "truncate", fontSize: 11 };
      return { ...common, nameGap: 74, type: "category", data: values };
    }
    if (!spec.log) return { ...common, type: "value", scale: !vertical, axisLabel: { ...common.axisLabel, formatter: common.axisLabel.formatter || ((v) => (Math.abs(v) >= 1e5 ? si(v) : v)) } };
    return { ...common, type: "log", logBase: vertical ? 10 : 2, axisLabel: { ...common.axisLabel, formatter: (v) => (spec.percent ? `${100 * v} %` : si(v)) } };
  }

  function bands(figure) {
    return (figure.bands || []).map((band, index) => ({
      type: "line", name: band.name, data: [], silent: true, color: band.low === band.high ? ink() : COLOURS[index % COLOURS.length],
      markLine: band.low === band.high ? {
        symbol: "none", lineStyle: { color: ink(), type: "dashed", width: 2 }, data: [{ yAxis: band.low }],
        label: { formatter: `${band.name} ${number(band.low, figure.y.percent)}`, position: "insideEndTop", color: ink() },
      } : undefined,
      markArea: band.low === band.high ? undefined : {
        itemStyle: { color: COLOURS[index % COLOURS.length], opacity: 0.12 }, data: [[{ yAxis: band.low }, { yAxis: band.high }]],
      },
    }));
  }

  function draw(element, figure) {
    if (figure.grid) return drawGrid(element, figure);
    const chart = open(element);
    const names = figure.series.length ? figure.series[0].x : [];
    const categorical = typeof names[0] === "string";
    chart.setOption({
      animation: false, color: COLOURS, textStyle: text(), aria: { enabled: true },
      grid: { left: 74, right: 24, top: 56, bottom: categorical ? 104 : 58 },
      legend: { type: "scroll", top: 4, textStyle: text() },
      tooltip: tooltip((p) => `${p.seriesName}\n${p.name || figure.x.title + " " + number(p.value[0], figure.x.percent)}\n${figure.y.title} ${number(Array.isArray(p.value) ? p.value[1] : p.value, figure.y.percent)}`),
      xAxis: axis(figure.x, categorical ? names : null, false),
      yAxis: axis(figure.y, null, true),
      series: [...figure.series.map((each) => ({
        name: each.name, type: each.kind === "line" ? "line" : each.kind === "points" ? "scatter" : "bar",
        stack: each.kind === "stack" ? "all" : undefined, symbolSize: 7, barMaxWidth: 60,
        data: categorical ? each.y : each.x.map((x, index) => [x, each.y[index]]),
      })), ...bands(figure)],
    });
    return chart;
  }

  function drawGrid(element, figure) {
    const chart = open(element), grid = figure.grid, cells = [];
    grid.values.forEach((row, y) => row.forEach((value, x) => { if (value !== null) cells.push([x, y, value]); }));
    const values = cells.map((each) => each[2]);
    chart.setOption({
      animation: false, textStyle: text(), grid: { left: 96, right: 110, top: 24, bottom: 84 }, aria: { enabled: true },
      tooltip: tooltip((p) => `${figure.x.title} ${grid.columns[p.value[0]]}\n${figure.y.title} ${grid.rows[p.value[1]]}\n${grid.title} ${number(p.value[2], grid.percent)}`),
      xAxis: axis(figure.x, grid.columns, false),
      yAxis: { ...axis(figure.y, grid.rows, true), nameGap: 70, axisLabel: { color: ink() } },
      visualMap: {
        min: Math.min(...values), max: Math.max(...values), calculable: true, orient: "vertical", right: 4, top: "middle", textStyle: text(),
        precision: 2, inRange: { color: ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"] }, text: [grid.title, ""],
      },
      series: [{ type: "heatmap", data: cells, label: { show: cells.length <= 200, formatter: (p) => number(p.value[2], grid.percent) } }],
    });
    return chart;
  }

  function drawTimeline(element, blocks) {
    const chart = open(element), lanes = blocks.lanes.length;
    const names = blocks.lanes.map(([place, name]) => (name === "compute" ? `${blocks.places[place]} · compute` : name));
    const data = blocks.cell.map((cell, index) => [blocks.start_s[index], blocks.end_s[index], blocks.lane[index], cell, blocks.microbatch[index], blocks.busy[index]]);
    const legend = Object.entries(blocks.cells).map(([cell, meaning]) => ({ cell, name: (cell === cell.toLowerCase() && cell !== "+" ? "communication: " : "") + meaning }));
    element.style.height = `${Math.max(180, 92 + 20 * lanes)}px`;
    chart.resize();
    chart.setOption({
      animation: false, textStyle: text(), aria: { enabled: true, label: { description: `Timeline of a step of ${seconds(blocks.step_s)}` } },
      grid: { left: 168, right: 20, top: 34, bottom: 62 }, legend: { top: 2, type: "scroll", textStyle: text(), data: legend.map((each) => each.name) },
      tooltip: tooltip((p) => {
        const [start, end, lane, cell, microbatch, busy] = p.value;
        return `${names[lane]}: ${blocks.cells[cell]}\n${microbatch >= 0 ? "microbatch " + microbatch : "once a step"}\n${seconds(start)} to ${seconds(end)}, ${seconds(end - start)} long\nbusy ${Math.round(100 * busy)} %`;
      }),
      dataZoom: [{ type: "slider", height: 18, bottom: 8, filterMode: "weakFilter", labelFormatter: (v) => seconds(v), textStyle: text() }, { type: "inside", filterMode: "weakFilter" }],
      xAxis: { type: "value", min: 0, max: blocks.step_s, axisLabel: { color: ink(), formatter: (v) => seconds(v) }, splitLine: { lineStyle: { color: faint() } } },
      yAxis: { type: "category", inverse: true, data: names, axisLabel: { color: ink(), fontSize: 10, width: 150, overflow: "truncate", interval: 0 }, splitLine: { show: true, lineStyle: { color: faint() } } },
      series: legend.map(({ cell, name }) => ({
        type: "custom", name, color: CELLS[cell], encode: { x: [0, 1], y: 2 }, data: data.filter((each) => each[3] === cell), progressive: 0, clip: true,
        renderItem: (params, api) => {
          const from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]);
          const tall = api.size([0, 1])[1] * 0.84, height = Math.max(tall * api.value(5), 2);
          const shape = echarts.graphic.clipRectByRect(
            { x: from[0], y: from[1] + tall / 2 - height, width: Math.max(to[0] - from[0], 0.7), height },
            { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
          return shape && { type: "rect", shape, style: { fill: CELLS[cell], stroke: dark() ? "#12151a" : "#ffffff", lineWidth: to[0] - from[0] > 5 ? 0.5 : 0 } };
        },
      })),
    });
    return chart;
  }

  function drawMemory(element, blocks, place, capacityBytes) {
    const chart = open(element), held = blocks.memory.find((each) => each.place === place), gib = 2 ** 30;
    chart.setOption({
      animation: false, color: COLOURS, textStyle: text(), grid: { left: 74, right: 24, top: 40, bottom: 48 }, aria: { enabled: true },
      legend: { top: 2, type: "scroll", textStyle: text() },
      tooltip: tooltip((points) => [seconds(points[0].value[0]), ...points.map((p) => `${p.seriesName} ${p.value[1].toFixed(2)} GiB`)].join("\n"), "axis"),
      xAxis: { type: "value", min: 0, max: blocks.step_s, axisLabel: { color: ink(), formatter: (v) => seconds(v) } },
      yAxis: { type: "value", name: "GiB", nameTextStyle: text(), axisLabel: { color: ink() }, splitLine: { lineStyle: { color: faint() } }, max: (v) => Math.ceil(Math.max(v.max, (capacityBytes || 0) / gib) * 1.05) },
      series: Object.entries(held ? held.category_bytes : {}).map(([name, values], index) => ({
        name, type: "line", stack: "all", areaStyle: { opacity: 0.8 }, lineStyle: { width: 0 }, symbol: "none", step: "end",
        data: values.map((value, at) => [held.time_s[at], value / gib]),
        markLine: index === 0 && capacityBytes ? { symbol: "none", lineStyle: { color: ink(), type: "dashed" }, data: [{ yAxis: capacityBytes / gib }], label: { formatter: `capacity ${(capacityBytes / gib).toFixed(0)} GiB`, position: "insideEndTop", color: ink() } } : undefined,
      })),
    });
    return chart;
  }

  const resize = () => charts.forEach((chart) => chart.resize());
  window.addEventListener("resize", resize);
  const forget = (element) => { const chart = echarts.getInstanceByDom(element); if (chart) { charts.delete(chart); chart.dispose(); } };
  return { draw, drawTimeline, drawMemory, forget, resize, si, seconds, number, COLOURS };
})();
