// The pages. What is asked is in the address, so that every view can be passed on; what is shown is the command's answer.
"use strict";

const PAGES = {
  plan: "Plan", timeline: "Timeline", compare: "Compare", scaling: "Scaling", "cluster-design": "Cluster design",
  "comp-vs-comm": "Compute vs. communication", subnetworks: "Subnetworks", "flexible-plans": "Flexible plans", sweep: "Sweep", api: "API",
};
const RESOURCES = ["compute", "memory", "memory-bandwidth", "inner-bandwidth", "outer-bandwidth", "latency"];
const GIB = 2 ** 30;
let catalog = null;

// --- elements ---
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return element;
}
const main = () => document.getElementById("main");
const say = (text) => { document.getElementById("status").textContent = text; };
function problem(error) { say(""); return el("p", { class: "error", role: "alert" }, error.message || String(error)); }
const select = (name, values, chosen, none = "(default)") => el("select", { name }, values.map((each) => el("option", { value: each, selected: each === chosen }, each || none)));
const wide = (element) => { element.classList.add("wide"); return element; };
const field = (label, input) => el("label", {}, label, input);
const number = (name, value, extra = {}) => el("input", { name, type: "number", min: 1, step: 1, value, inputmode: "numeric", ...extra });

// --- asking ---
async function ask(path, body, signal, headers = {}) {
  const send = () => fetch(path, body === undefined ? { signal } : {
    method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body), signal });
  let response = await send(), value;
  for (let tries = 0; response.status === 503 && response.headers.has("retry-after") && tries < 30; tries += 1) { // it has all the questions that it takes
    say("Many ask just now: asking again…");
    await new Promise((resolve) => { setTimeout(resolve, 1000 * Number(response.headers.get("retry-after"))); });
    response = await send();
  }
  try { value = await response.json(); } catch { value = { error: `the server answered ${response.status}` }; }
  if (!response.ok) throw new Error(value.error || `the server answered ${response.status}`);
  return value;
}
// As ask; while others are before it, says so.
async function askInTurn(words, path, body, signal) {
  const ticket = Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(16).padStart(2, "0")).join("");
  let over = false;
  const watch = async () => {
    while (!over && !signal.aborted) {
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
      if (over || signal.aborted) return;
      try { const { place } = await ask(`/api/waiting/${ticket}`, undefined, signal); if (over || signal.aborted) return; say(place ? `Waiting: place ${place} in the queue` : words); if (!place) return; } catch { return; }
    }
  };
  say(words); watch();
  try { return await ask(path, body, signal, { "x-ticket": ticket }); } finally { over = true; }
}
async function known() {
  if (!catalog) catalog = await ask("/api/catalog");
  return catalog;
}

// --- the address: what is asked, so that a link reproduces a view ---
const asked = () => Object.fromEntries([...new URLSearchParams(location.search)].filter(([key]) => key !== "token"));
function show(page, question, push = true) {
  const search = new URLSearchParams(Object.entries(question).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const address = `/${page}${search.size ? "?" + search : ""}`;
  if (push && address !== location.pathname + location.search) history.pushState(null, "", address);
}
async function packed(text) {
  const bytes = await new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"))).arrayBuffer();
  return btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader(), parts = [];
  for (let size = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    if ((size += value.length) > 1e6) throw new Error("the configuration in the address is larger than 1 MB");
    parts.push(value);
  }
  return new Blob(parts).text();
}
const OPTIMIZERS = ["adamw", "adamw-mu-bf16", "adamw-bf16", "adamw-8bit", "precision-aware", "precision-aware-bf16", "precision-aware-fp8", "muon", "adafactor", "sgd", "lion"];
async function subject(question) {
  const body = { device: question.device || "h100", count: Number(question.count || 512) };
  if (question.config) body.config = JSON.parse(await unpacked(question.config)); else body.model = question.model || "llama3-70b";
  for (const key of ["network", "tokens", "precision", "stack", "batch_tokens", "optimizer", "grad_dtype"]) if (question[key]) body[key] = question[key];
  for (const key of ["price", "expert_imbalance"]) if (question[key]) body[key] = Number(question[key]);
  for (const key of ["batch", "seq"]) if (question[key]) body[key] = Number(question[key]);
  if (severalSites(question)) { body.sites = Number(question.sites); for (const key of ["link", "link_latency"]) if (question[key]) body[key] = unspaced(question[key]); }
  const change = Object.fromEntries(RESOURCES.filter((each) => question[each] && Number(question[each]) !== 1).map((each) => [each, Number(question[each])]));
  if (Object.keys(change).length) body.change = change;
  return body;
}
async function planQuestion(question) {
  const body = await subject(question);
  if (question.objective) body.objective = question.objective;
  if (question.fix) body.fix = question.fix.split(/[ ;]+/).filter(Boolean);
  body.top = Number(question.top) || 20;
  if (question.algorithm) { body.algorithm = question.algorithm; if (question.islands) body.islands = Number(question.islands); }
  return body;
}

// --- leaving with it ---
function save(name, content, type) {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
function csv(rows) {
  if (!rows.length) return "";
  const names = Object.keys(rows[0]), cell = (value) => { const text = value === null || value === undefined ? "" : String(value); return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\n") + "\n";
}
const pictures = (charts) => charts.filter(([, element]) => echarts.getInstanceByDom(element));
function leaving(name, command, value, rows, charts, more = []) {
  const png = async () => {
    for (const [title, element] of pictures(charts())) {
      const chart = echarts.getInstanceByDom(element), link = el("a", { href: chart.getDataURL({ pixelRatio: 2, backgroundColor: getComputedStyle(document.body).backgroundColor }), download: `${name}-${title}.png` });
      link.click();
      await new Promise((resolve) => { setTimeout(resolve, 150); }); // browsers drop downloads that come all at once
    }
  };
  const copy = async () => { try { await navigator.clipboard.writeText(command); say("Copied"); } catch { say("Select the command to copy it"); } setTimeout(() => say(""), 1500); };
  return el("div", { class: "leaving" }, el("h2", {}, "Take it with you"), el("pre", { id: "command" }, command),
    el("div", { class: "row" },
      el("button", { type: "button", onclick: copy }, "Copy as command"),
      el("button", { type: "button", onclick: () => save(`${name}.json`, JSON.stringify(value, null, 2), "application/json") }, "JSON"),
      rows ? el("button", { type: "button", onclick: () => save(`${name}.csv`, csv(rows()), "text/csv") }, "CSV") : null,
      el("button", { type: "button", onclick: png }, "PNG"), ...more));
}

// --- parts that pages share ---
function figures(list) {
  const box = el("div", { class: "charts" }), drawn = [];
  for (const figure of list) {
    const chart = el("div", { class: "chart", "aria-label": figure.title, tabindex: 0 });
    const claim = figure.claim ? el("p", { class: "small" }, el("b", {}, "Claim: "), figure.claim, " ", el("span", { class: figure.holds ? "holds" : "fails" }, figure.holds ? "It holds." : "It does not hold."), " ", el("b", {}, "Found: "), figure.finding) : null;
    box.append(el("section", {}, el("h2", {}, figure.title), claim, chart));
    drawn.push([figure.name, chart, figure]);
  }
  requestAnimationFrame(() => drawn.forEach(([, chart, figure]) => Charts.draw(chart, figure)));
  box.charts = () => drawn.map(([name, chart]) => [name, chart]);
  return box;
}
const shown = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? value !== 0 && Math.abs(value) < 1e-4 ? value.toExponential(3) : value.toLocaleString("en", { maximumSignificantDigits: 5 }) : typeof value === "object" ? JSON.stringify(value) : String(value));
function table(title, rows, columns, onpick) {
  const body = el("tbody"), filter = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title}` });
  let by = null, down = false;
  const paint = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let list = rows.filter((row) => wanted.every((word) => columns.some((column) => shown(column.of(row)).toLowerCase().includes(word))));
    if (by) list = [...list].sort((a, b) => { const [x, y] = [by.key || by.of, by.key || by.of].map((of, index) => of([a, b][index])); return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) * (down ? -1 : 1); });
    body.replaceChildren(...list.slice(0, 500).map((row) => el("tr", {}, columns.map((column, index) => el("td", { class: column.left ? "left" : null },
      index === 0 && onpick ? el("button", { type: "button", class: "plain", title: "Show its timeline", onclick: () => onpick(row) }, shown(column.of(row))) : (column.show || shown)(column.of(row)))))));
  };
  const head = columns.map((column) => el("th", { scope: "col", "aria-sort": "none", class: column.left ? "left" : null }, el("button", { type: "button", onclick: (event) => {
    down = by === column ? !down : false; by = column;
    head.forEach((each) => each.setAttribute("aria-sort", "none"));
    event.target.closest("th").setAttribute("aria-sort", down ? "descending" : "ascending");
    paint();
  } }, column.name)));
  filter.addEventListener("input", paint); paint();
  return el("section", {}, el("div", { class: "row" }, el("h2", {}, title), filter, el("span", { class: "small" }, rows.length > 500 ? `the first 500 of ${rows.length.toLocaleString("en")} that match` : "")), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, el("table", {}, el("thead", {}, el("tr", {}, head)), body)));
}
// Names of fields as people read them; the unit stays in the name.
const NAMES = { tokens_per_s: "tokens/s", tokens_per_s_per_device: "tokens/s/device", mfu: "MFU", hfu: "HFU", dollars_per_million_tokens: "$/M tokens", joules_per_token: "J/token", power_w: "power W", device_w: "W/device", memory_gib: "memory GiB" };
const named = (name) => NAMES[name] || name.replaceAll("_", " ").replace(/ per s$/, "/s").replace(/ fraction$/, " share");
const columnsOf = (rows) => Object.keys(rows[0] || {}).map((name) => ({ name: named(name), of: (row) => row[name], left: rows.some((row) => typeof row[name] === "string") }));
const fact = (value, what) => el("div", { class: "fact" }, el("b", {}, value), el("span", {}, what));

const nearest = (names, asked) => names.find((each) => each === asked) || names.find((each) => each.startsWith(`${asked}-sxm`)) || names.find((each) => each.startsWith(asked)) || names[0];
function subjectFields(question, known) {
  const names = (kind) => known[kind].map((each) => each.name);
  const model = el("input", { name: "model", list: "models", value: question.config ? "" : question.model || "llama3-70b", autocomplete: "off", placeholder: question.config ? "uploaded config.json" : "" });
  const config = el("input", { type: "hidden", name: "config", value: question.config || "" });
  const upload = el("input", { type: "file", accept: ".json,application/json", id: "upload", onchange: async (event) => {
    const file = event.target.files[0];
    try {
      if (!file) return;
      if (file.size > 1e6) throw new Error(`${file.name}: is larger than 1 MB; a model's config.json is not`);
      const text = await file.text();
      config.value = await packed(JSON.stringify(JSON.parse(text)));
      model.value = ""; model.placeholder = file.name;
      event.target.form.requestSubmit();
    } catch (error) { document.getElementById("answer").replaceChildren(problem(error instanceof SyntaxError ? new Error(`${file.name}: is not JSON; use a model's config.json`) : error)); }
  } });
  model.addEventListener("input", () => { if (model.value) config.value = ""; });
  return [
    el("datalist", { id: "models" }, names("models").map((each) => el("option", { value: each }))), config,
    wide(field("Model", model)), wide(field("or a Hugging Face config.json", upload)),
    field("Device", select("device", names("devices"), nearest(names("devices"), question.device || "h100"))),
    field("Devices", number("count", question.count || 512, { max: 1000000 })),
    field("Network", select("network", ["", ...names("networks")], question.network || "")),
    field("Sequences a step", number("batch", question.batch || "", { placeholder: "by model size" })),
    field("or tokens a step, ± 3 %", el("input", { name: "batch_tokens", value: question.batch_tokens || "", placeholder: "like 16M" })),
    field("Tokens a sequence", number("seq", question.seq || "", { placeholder: "the model's" })),
    field("Tokens to train on", el("input", { name: "tokens", value: question.tokens || "", placeholder: "20 a parameter; like 15T" })),
    field("Precision", select("precision", ["", "bf16", "fp16", "fp8", "fp4", "fp32"], question.precision || "")),
    field("Software", select("stack", ["", ...names("stacks")], question.stack || "")),
    field("Optimizer", select("optimizer", ["", ...OPTIMIZERS], question.optimizer || "")),
    field("Gradients", select("grad_dtype", ["", "fp32", "bf16"], question.grad_dtype || "")),
    field("Expert imbalance", el("input", { name: "expert_imbalance", type: "number", min: 1, step: "any", placeholder: "the software's", value: question.expert_imbalance || "" })),
    field("$ a device and hour", el("input", { name: "price", type: "number", min: 0, step: "any", value: question.price || "", placeholder: "the catalog's", inputmode: "decimal" })),
    siteFields(question),
  ];
}
// A resource as a field with the cluster's own figure and as a slider of its factor: one sets the other.
const FIGURES = {
  compute: ["TFLOP/s", 1e12, (device) => device.flops_per_s], memory: ["GiB", GIB, (device) => device.memory_bytes],
  "memory-bandwidth": ["GB/s", 1e9, (device) => device.memory_bytes_per_s], "inner-bandwidth": ["GB/s", 1e9, (_, network) => network.inner_bytes_per_s],
  "outer-bandwidth": ["GB/s", 1e9, (_, network) => network.outer_bytes_per_s], latency: ["x", 1, () => 1],
};
const digits = (value, count) => String(Number(value.toPrecision(count)));
function sliders(question, facts, onchange) {
  const box = el("fieldset", {}, el("legend", {}, "What if: the cluster edited"));
  const chosen = (kind, name) => facts[kind].find((each) => each.name === name) || {};
  const rows = RESOURCES.map((name) => {
    const [unit, scale, of] = FIGURES[name], out = el("output", {});
    const range = el("input", { type: "range", name, min: -3, max: 3, step: 0.25, "data-factor": question[name] || 1, "aria-label": `times the ${name}` });
    const exact = el("input", { type: "number", class: "exact", min: 0, step: "any", "aria-label": `${name}, ${unit}` });
    const base = () => { const device = chosen("devices", box.form.elements.device.value), network = chosen("networks", box.form.elements.network.value || device.network); return of(device, network) / scale || 1; };
    const paint = () => { const factor = Number(range.dataset.factor); range.value = Math.log2(factor); exact.value = digits(base() * factor, 4); out.textContent = factor === 1 ? "" : `${digits(factor, 3)}x`; };
    const set = (factor) => { range.dataset.factor = digits(Math.min(Math.max(factor, 0.01), 100) || 1, 6); paint(); };
    range.addEventListener("input", () => { set(Number(digits(2 ** range.value, 3))); onchange(); });
    exact.addEventListener("change", () => { set(Number(exact.value) / base()); onchange(); });
    box.append(el("div", { class: "what-if" }, el("span", {}, name, " ", out), exact, el("span", {}, unit), range));
    return { paint, set };
  });
  const count = el("input", { type: "range", min: 0, max: 17, step: 1, "aria-label": "devices", id: "devices" }), told = el("output", {});
  const field = () => box.form.elements.count;
  const paintCount = () => { count.value = Math.log2(Number(field().value) || 1); told.textContent = (Number(field().value) || 1).toLocaleString("en"); };
  count.addEventListener("input", () => { field().value = 2 ** count.value; paintCount(); onchange(); });
  box.children[0].after(el("div", { class: "what-if" }, el("span", {}, "devices ", told), count));
  box.append(el("button", { type: "button", id: "reset", onclick: () => { rows.forEach((each) => each.set(1)); onchange(); } }, "As in the catalog"));
  box.begin = () => {
    const all = () => { rows.forEach((each) => each.paint()); paintCount(); };
    for (const name of ["device", "network", "count"]) box.form.elements[name].addEventListener("input", all);
    all();
  };
  return box;
}
function values(form) {
  const found = {};
  for (const input of form.elements) {
    if (!input.name || input.type === "file") continue;
    if (input.dataset.factor) { if (Number(input.dataset.factor) !== 1) found[input.name] = input.dataset.factor; } else if (input.type === "checkbox") { if (input.checked) found[input.name] = "1"; } else if (input.value) found[input.name] = input.value;
  }
  if (!severalSites(found)) for (const name of ["sites", "link", "link_latency"]) delete found[name];
  if (!found.algorithm) delete found.islands;
  return found;
}
// Answers arrive in the order of the questions: an older one never replaces a newer.
function latest(work) {
  let controller = null;
  return async (...words) => {
    if (controller) controller.abort();
    const own = controller = new AbortController();
    try { await work(own.signal, ...words); } catch (error) { if (error.name !== "AbortError") throw error; }
  };
}

// --- plan ---
async function planPage(question) {
  const facts = await known(), answer = el("div", { id: "answer", "aria-live": "polite" });
  const form = el("form", { id: "form", class: "dense", onsubmit: (event) => { event.preventDefault(); update(true); } });
  let timer = 0;
  const soon = () => { clearTimeout(timer); timer = setTimeout(() => update(true), 120); };
  const edited = sliders(question, facts, soon);
  form.append(...subjectFields(question, facts), field("Best by", select("objective", ["time", "cost", "energy", "memory"], question.objective || "time")),
    wide(field("Fixed knobs", el("input", { name: "fix", value: question.fix || "", placeholder: "tp=8 pp=4" }))),
    algorithmFields(question, facts.algorithms), edited, el("button", { class: "main", type: "submit", id: "go" }, "Plan"));
  edited.begin();
  const update = latest(async (signal, push) => {
    const current = values(form);
    if (current.objective === "time") delete current.objective;
    show("plan", current, push);
    answer.classList.add("busy");
    const began = performance.now();
    try {
      const found = await askInTurn("Searching…", "/api/plan", await planQuestion(current), signal);
      if (found.instances) { answer.replaceChildren(...recommenderAnswer(found)); say(""); return; }
      const apart = found.algorithms ? islandsAnswer(found) : [], charts = apart.charts || (() => []);
      answer.replaceChildren(...apart, ...(found.plans.length ? planAnswer(found, current, signal, charts) : notesAnswer(found, charts)));
      answer.dataset.took = String(performance.now() - began);
      say("");
    } catch (error) { if (error.name === "AbortError") throw error; answer.replaceChildren(problem(error)); } finally { if (!signal.aborted) answer.classList.remove("busy"); }
  });
  main().replaceChildren(el("h1", {}, "How to train this model on that cluster"), el("div", { class: "columns" }, form, answer));
  await update(false);
}
function planAnswer(found, question, signal, more) {
  const best = found.plans[0], budget = best.budget, drawn = figures(found.figures);
  question = { ...question, optimizer: found.optimizer || question.optimizer || "", grad_dtype: found.grad_dtype || question.grad_dtype || "" }; // of its plans, which may be a recipe's
  const stage = el("section", { id: "stages" });
  const rows = () => found.plans.map((each, index) => ({ rank: index + 1, strategy: each.strategy.text, variants: each.variants ?? 1, step_s: each.step_s, tokens_per_s: each.tokens_per_s, mfu: each.mfu, total_bytes: each.total_bytes, dollars_per_million_tokens: each.budget.dollars_per_million_tokens, joules_per_token: each.joules_per_token }));
  const columns = [
    { name: "strategy", of: (row) => row.strategy.text, left: true }, { name: "step", of: (row) => row.step_s, show: Charts.seconds },
    { name: "range", of: (row) => `${Charts.seconds(row.low_s)} – ${Charts.seconds(row.high_s)}`, key: (row) => row.low_s },
    { name: "tokens/s", of: (row) => row.tokens_per_s, show: (v) => Charts.si(v) }, { name: "tokens/s a device", of: (row) => row.tokens_per_s_per_device, show: (v) => Charts.si(v) },
    { name: "MFU", of: (row) => row.mfu, show: (v) => `${(100 * v).toFixed(1)} %` }, { name: "memory", of: (row) => row.total_bytes, show: (v) => `${(v / GIB).toFixed(1)} GiB` },
    { name: "$/M tokens", of: (row) => row.budget.dollars_per_million_tokens, show: (v) => v.toPrecision(3) }, { name: "J/token", of: (row) => row.joules_per_token, show: (v) => v.toPrecision(3) },
    { name: "exposed", of: (row) => row.exposed_fraction, show: (v) => `${(100 * v).toFixed(1)} %` },
    { name: "variants within 1 %", of: (row) => row.variants ?? 1 },
  ];
  const timeline = (row) => go("timeline", { ...question, objective: "", fix: "", algorithm: "", islands: "", plan: row.strategy.text, batch: String(row.global_batch), batch_tokens: "" });
  const place = drawn.charts().find(([name]) => name === "time_memory");
  if (place) seen(place[1], signal, () => front(place[1], question, signal));
  if (best.strategy.pp > 1) { stage.append(el("h2", {}, "Memory of each stage, simulated"), el("div", { class: "chart" })); seen(stage, signal, () => stages(stage, best, question, signal)); }
  return [
    found.algorithms ? el("h2", {}, "Exact training") : null,
    el("div", { class: "facts" },
      fact(best.strategy.text, "the best strategy"), fact(Charts.seconds(best.step_s), `a step (${Charts.seconds(best.low_s)} – ${Charts.seconds(best.high_s)})`),
      fact(`${Charts.si(best.tokens_per_s)} tokens/s`, `${Charts.si(best.tokens_per_s_per_device)} a device`), fact(`${(100 * best.mfu).toFixed(1)} %`, "MFU"),
      fact(`${(best.total_bytes / GIB).toFixed(1)} GiB`, `of ${(best.capacity_bytes / GIB).toFixed(1)} on the fullest device`),
      fact(`${Charts.number(budget.days)} days`, `for ${Charts.si(budget.tokens)} tokens`), fact(`$${Math.round(budget.dollars).toLocaleString("en")}`, `$${budget.dollars_per_million_tokens.toPrecision(3)} a million tokens`),
      fact(Charts.si(best.power_w, "W"), `${Math.round(best.device_w)} W a device, ${best.joules_per_token.toPrecision(3)} J a token`)),
    table(`${found.plans.length} best plans of ${found.considered.toLocaleString("en")} strategies, which differ in parallel degrees or sharding`, found.plans, columns, timeline), drawn, stage,
    el("section", {}, el("h2", {}, "What limits it"), el("ul", {}, found.limits.map((each) => el("li", {}, each)))),
    assumptions(found.notes),
    leaving("plan", found.command, found, found.algorithms ? () => islandRows(found) : rows, () => [...more(), ...drawn.charts(), ...(stage.charts ? stage.charts() : [])], planFiles(found)),
  ].filter(Boolean);
}
// Where algorithms fit and exact training does not.
function notesAnswer(found, charts) {
  return [assumptions(found.notes), leaving("plan", found.command, found, () => islandRows(found), charts, planFiles(found))];
}
const assumptions = (notes) => el("section", {}, el("h2", {}, "Assumptions"), el("ul", { class: "small" }, notes.map((each) => el("li", {}, each))));
// What takes longer than the answer is asked for when it comes into view, unless another question is asked first.
function seen(element, signal, work) {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((each) => each.isIntersecting)) return;
    watch.disconnect();
    if (!signal.aborted) work();
  }, { rootMargin: "100px" });
  requestAnimationFrame(() => watch.observe(element));
}
async function front(place, question, signal) {
  try {
    const found = await ask("/api/plan", { ...(await planQuestion({ ...question, algorithm: "" })), pareto: true }, signal);
    const figure = found.figures.find((each) => each.name === "time_memory");
    if (figure && place.isConnected) Charts.draw(place, figure);
  } catch { /* the plan stands without it */ }
}
async function stages(place, best, question, signal) {
  try {
    const step = await ask("/api/simulate", { ...(await subject({ ...question, precision: "", batch: best.global_batch, batch_tokens: "" })), plan: best.strategy.text }, signal);
    const drawn = figures([{ ...step.figures.find((each) => each.name === "memory"), name: "stages", title: "Memory of each stage, simulated" }]);
    place.replaceChildren(drawn);
    place.charts = drawn.charts;
  } catch (error) { if (error.name !== "AbortError") place.replaceChildren(el("p", { class: "small" }, `Memory of each stage: ${error.message}`)); }
}

// --- timeline ---
async function timelinePage(question) {
  const facts = await known(), answer = el("div", { id: "answer", "aria-live": "polite" });
  const usual = question.plan ? question : { model: "gpt3-13b", count: 32, batch: question.batch_tokens ? "" : 64, ...question, plan: "dp2 tp4 pp4 mb1 zero1 1f1b selective" };
  const form = el("form", { class: "dense", onsubmit: (event) => { event.preventDefault(); update(true); } });
  let timer = 0;
  const edited = sliders(usual, facts, () => { clearTimeout(timer); timer = setTimeout(() => update(true), 250); });
  form.append(...subjectFields(usual, facts).filter((each) => !/Precision/.test(each.textContent.slice(0, 9))),
    wide(field("Strategy, or a plan of the zoo", el("textarea", { name: "plan", class: "short", required: true, spellcheck: "false" }))), edited, el("button", { class: "main", type: "submit" }, "Simulate"));
  form.elements.plan.value = usual.plan;
  edited.begin();
  const update = latest(async (signal, push) => {
    const current = { ...values(form), plan: form.elements.plan.value.trim().replace(/\s+/g, " ") };
    show("timeline", current, push);
    answer.classList.add("busy");
    try {
      const body = { ...(await subject(current)), plan: current.plan };
      delete body.precision;
      const step = await askInTurn("Simulating…", "/api/simulate", body, signal);
      answer.replaceChildren(...timelineAnswer(step, body)); say("");
    } catch (error) { if (error.name === "AbortError") throw error; answer.replaceChildren(problem(error)); } finally { if (!signal.aborted) answer.classList.remove("busy"); }
  });
  main().replaceChildren(el("h1", {}, "One step of a plan"), el("div", { class: "columns" }, form, answer));
  await update(false);
}
function timelineAnswer(step, body) {
  const chart = el("div", { class: "chart", id: "timeline", tabindex: 0, "aria-label": "Timeline: arrows move, plus and minus zoom, 0 shows all" }), held = el("div", { class: "chart", id: "held", tabindex: 0, "aria-label": "Memory over time" });
  const drawn = figures(step.figures), places = step.blocks.places;
  const place = el("select", { id: "place", onchange: () => Charts.drawMemory(held, step.blocks, Number(place.value), step.capacity_bytes, chart) }, places.map((name, index) => el("option", { value: index }, name)));
  requestAnimationFrame(() => { Charts.drawTimeline(chart, step.blocks); Charts.drawMemory(held, step.blocks, 0, step.capacity_bytes, chart); });
  const { tokens, price, ...traced } = body; // a trace says nothing of the whole run
  const trace = async () => { say("Writing the trace…"); try { save("step.json", JSON.stringify(await ask("/api/trace", traced)), "application/json"); say(""); } catch (error) { say(error.message); } };
  const rows = () => step.blocks.cell.map((cell, index) => ({ lane: step.blocks.lanes[step.blocks.lane[index]][1], place: places[step.blocks.lanes[step.blocks.lane[index]][0]], kind: step.blocks.cells[cell], microbatch: step.blocks.microbatch[index], start_s: step.blocks.start_s[index], end_s: step.blocks.end_s[index], busy: step.blocks.busy[index] }));
  return [
    el("div", { class: "facts" }, fact(Charts.seconds(step.step_s), "a step, simulated"), fact(`${Charts.si(step.tokens_per_s)} tokens/s`, `${Charts.si(step.tokens_per_s_per_device)} a device`), fact(`${(100 * step.mfu).toFixed(1)} %`, "MFU"), fact(step.fits ? "It fits" : "It does not fit", `${(Math.max(...step.memory.map((each) => each.total_bytes)) / GIB).toFixed(1)} of ${(step.capacity_bytes / GIB).toFixed(1)} GiB`)),
    el("section", {}, el("h2", {}, "Timeline"), el("p", { class: "small" }, `${step.tasks.toLocaleString("en")} tasks on ${step.devices} devices in ${step.places} places${step.blocks.hidden ? `, ${step.blocks.hidden} of them not shown` : ""}. Gaps in compute are idle (bubbles) unless communication is exposed below them; the height of a block is the share of it that is worked on. Scroll to zoom and drag to move, or by keyboard: + and -, arrows, 0 for all; memory follows.`), chart),
    el("section", {}, el("h2", {}, "Memory over the step"), el("label", { class: "row" }, "Of", place), held), drawn,
    el("section", {}, el("h2", {}, "In words"), el("ul", {}, step.lines.map((each) => el("li", {}, each)))),
    el("div", { class: "row" }, el("button", { type: "button", id: "trace", onclick: trace }, "Trace for Perfetto")),
    leaving("simulate", step.command, step, rows, () => [["timeline", chart], ["memory", held], ...drawn.charts()]),
  ];
}

// --- compare ---
async function comparePage(question) {
  const facts = await known(), answer = el("div", { id: "answer" });
  const lines = question.cases || "llama3-70b h100:512\nllama3-70b b200:256\nllama3-70b mi300x:512\nllama3-70b h100:512 tp=8 zero=1";
  const text = el("textarea", { name: "cases", spellcheck: "false", "aria-label": "One question a line: MODEL DEVICE:COUNT[xSITES][@NETWORK][@LINK] [KNOB=VALUE ...]", wrap: "off" });
  text.value = lines;
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); update(true); } }, el("label", {}, "One a line: MODEL DEVICE:COUNT[@NETWORK] [KNOB=VALUE …], several sites like h100:64x2@10Gbps; also batch=, batch_tokens=, seq=, tokens=, precision=, stack=, optimizer=, grad_dtype=, expert_imbalance=, objective=", text), el("button", { class: "main", type: "submit" }, "Compare"));
  const traces = { predicted: null, measured: null }, measured = el("div", { id: "measured-answer" });
  const load = (name) => el("input", { type: "file", accept: ".json,application/json", id: name, onchange: async (event) => {
    try { traces[name] = spansOnly(await readTrace(event.target.files[0])); if (traces.predicted && traces.measured) measured.replaceChildren(...measuredAnswer(await ask("/api/compare", traces))); } catch (error) { measured.replaceChildren(problem(error)); }
  } });
  const beside = el("section", {}, el("h2", {}, "Predicted beside measured"), el("div", { class: "row" }, field("Predicted trace (simulate --trace)", load("predicted")), field("Measured trace (run --record)", load("measured"))), measured);
  const update = latest(async (signal, push) => {
    const cases = text.value.split("\n").map((each) => each.trim()).filter(Boolean).slice(0, 16);
    show("compare", { cases: cases.join("\n") }, push);
    answer.classList.add("busy"); say("Searching…");
    const results = await Promise.all(cases.map(async (line) => { try { return { line, found: inTokens(await ask("/api/plan", parseCase(line), signal)) }; } catch (error) { if (error.name === "AbortError") throw error; return { line, error }; } }));
    answer.replaceChildren(...compareAnswer(results)); answer.classList.remove("busy"); say("");
  });
  main().replaceChildren(el("h1", {}, "Side by side"), el("div", { class: "columns" }, el("div", {}, form), answer), beside);
  await update(false);
}
function parseCase(line) {
  const [model, cluster = "", ...knobs] = line.split(/\s+/), [place, ...at] = cluster.split("@"), [device, size = ""] = place.split(":"), [count, sites] = size.split("x");
  const body = { model, device, count: Number(count) || 0, fix: [], top: 1 };
  if (sites) { // like h100:64x2@10Gbps, a network before and a latency after the rate if stated
    body.sites = Number(sites);
    if (/^[\d.]+[mu]?s$/.test(at[at.length - 1])) body.link_latency = at.pop();
    body.link = at.pop();
  }
  if (at.length) body.network = at.join("@");
  for (const knob of knobs) {
    const [name, value] = knob.split("=");
    if (["batch", "seq", "expert_imbalance"].includes(name)) body[name] = Number(value); else if (["batch_tokens", "tokens", "precision", "stack", "optimizer", "grad_dtype", "objective"].includes(name)) body[name] = value; else body.fix.push(knob);
  }
  return body;
}
function inTokens(found) {
  if (found.instances) throw new Error("is a recommender, which learns from samples, not tokens; ask for it on the page Plan");
  return found;
}
// A trace whose last key is the SHA-256 of all bytes before it, if it has one; browsers compute none on pages of other machines without TLS.
async function readTrace(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()), end = new TextDecoder().decode(bytes.subarray(-200));
  if (/"checksum"|sha256:/.test(end) && globalThis.crypto?.subtle) {
    const seal = /,"checksum":"sha256:([0-9a-f]{64})"\}\n$/.exec(end);
    const own = seal && new Uint8Array(await crypto.subtle.digest("SHA-256", bytes.subarray(0, bytes.length - seal[0].length)));
    if (!seal || [...own].map((each) => each.toString(16).padStart(2, "0")).join("") !== seal[1])
      throw new Error(`${file.name} was edited or damaged since it was written: its checksum differs; write it again, or remove its last key, "checksum", to use it as it is`);
  }
  return JSON.parse(new TextDecoder().decode(bytes));
}
// Of a trace only what is compared: tasks, and the lanes that they are in.
const spansOnly = (trace) => ({ ...trace, traceEvents: (trace.traceEvents || []).filter((each) => each.ph === "X" || each.ph === "M") });
// Points that no other beats in both.
const undominated = (points) => points.filter(([x, y]) => !points.some(([a, b]) => a <= x && b <= y && (a < x || b < y))).sort((a, b) => a[0] - b[0]);
function compareAnswer(results) {
  const good = results.filter((each) => each.found), names = good.map((each) => each.line);
  const of = (what) => good.map((each) => what(each.found.plans[0]));
  const rows = good.map((each) => ({ case: each.line, strategy: each.found.plans[0].strategy.text, tokens_per_s: each.found.plans[0].tokens_per_s, step_s: each.found.plans[0].step_s, mfu: each.found.plans[0].mfu, dollars_per_million_tokens: each.found.plans[0].budget.dollars_per_million_tokens, joules_per_token: each.found.plans[0].joules_per_token, power_w: each.found.plans[0].power_w, memory_gib: each.found.plans[0].total_bytes / GIB }));
  const bars = (name, title, y, what) => ({ name, title, x: { title: "case" }, y: { title: y }, series: [{ name: y, kind: "bars", x: names, y: of(what) }], bands: [] });
  const parts = [...new Set(good.flatMap((each) => Object.entries(each.found.plans[0].time_s).filter(([, spent]) => spent > 0.002 * each.found.plans[0].step_s).map(([part]) => part)))];
  const points = good.map((each) => [each.found.plans[0].budget.days, each.found.plans[0].budget.dollars]), best = undominated(points);
  const pareto = { name: "pareto", title: "Cost against time, for each one's tokens", x: { title: "days" }, y: { title: "dollars" }, bands: [], series: [...good.map((each, index) => ({ name: each.line, kind: "points", labelled: true, x: [points[index][0]], y: [points[index][1]] })), { name: "Pareto front", kind: "line", x: best.map((each) => each[0]), y: best.map((each) => each[1]) }] };
  const drawn = good.length ? figures([bars("tokens", "Throughput", "tokens/s", (each) => each.tokens_per_s), pareto, bars("cost", "Cost", "$ a million tokens", (each) => each.budget.dollars_per_million_tokens), bars("energy", "Energy", "joules a token", (each) => each.joules_per_token),
    { name: "time", title: "Where the step goes", x: { title: "case" }, y: { title: "seconds a step" }, bands: [], series: [...parts.map((part) => ({ name: part, kind: "stack", x: names, y: of((each) => each.time_s[part] || 0) })), { name: "other", kind: "stack", x: names, y: of((each) => Object.entries(each.time_s).reduce((sum, [part, spent]) => sum + (parts.includes(part) ? 0 : spent), 0)) }] }]) : el("p", {}, "Nothing to compare.");
  return [...results.filter((each) => each.error).map((each) => problem(new Error(`${each.line}: ${each.error.message}`))), rows.length ? table("The best of each", rows, columnsOf(rows)) : null, drawn,
    leaving("compare", good.map((each) => each.found.command).join("\n"), good.map((each) => each.found), () => rows, drawn.charts || (() => []))].filter(Boolean);
}
function measuredAnswer(found) {
  const pairs = [...found.causes, found.step], names = pairs.map((each) => each.name);
  const figure = { name: "measured", title: `Predicted and measured: ${found.about.model}, ${found.about.plan}`, x: { title: "cause" }, y: { title: "seconds" }, bands: [], series: ["predicted_s", "measured_s"].map((key) => ({ name: key.slice(0, -2), kind: "bars", x: names, y: pairs.map((each) => each[key]) })) };
  return [figures([figure]), table("Tasks that differ most", found.tasks, columnsOf(found.tasks))];
}

// --- studies and sweeps: jobs ---
const STUDY_FIELDS = {
  scaling: [["model", "llama2-7b", "Model"], ["device", "h100", "Device, or device@network"], ["devices", "8:2048", "Devices, doubled from:to, or a list"], ["seq", "4096", "Tokens a sequence"], ["local-batch", "2", "Sequences a device, weak scaling"], ["batch", "32,1024", "Sequences a step, strong scaling"]],
  "comp-vs-comm": [["moe", "64:2", "Experts: how many, and how many a token uses"], ["pipeline", "4", "Pipeline stages, or stages:microbatches"], ["replicas", "16", "Replicas of data parallelism"], ["sequence-parallel", true, "Norms and residuals split, too"], ["fsdp", true, "Sharded weights (FSDP)"], ["inference", true, "Forward only"], ["in-network-reduction", true, "Switches sum"], ["offload-communication", true, "No interference with compute"]],
  "cluster-design": [["model", "transformer-1t", "Transformer"], ["recommender", "dlrm-1.2t", "Recommender"], ["devices", "1024", "Devices, a power of two"], ["batch", "256", "Sequences a step, a power of two"], ["clusters", "h100@dgx-h100,tpu-v4", "Clusters to compare"]],
  subnetworks: [["quick", true, "Quick: fewer and shorter runs"]],
  "flexible-plans": [["model", "mbart", "Family: swin, mbart, gpt3 or alphafold2"], ["device", "v100", "Device: v100 or h100"], ["devices", "8", "Devices, like 8,16"]],
};
async function studyPage(name, question) {
  const facts = await known(), about = facts.studies.find((each) => each.name === name), answer = el("div", { id: "answer" });
  if (!about) { main().replaceChildren(el("h1", {}, PAGES[name]), el("p", {}, "This version has no such study.")); return; }
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); start(); } }, (STUDY_FIELDS[name] || []).map(([key, usual, label]) => (usual === true
    ? el("label", {}, el("span", { class: "row" }, el("input", { type: "checkbox", name: key, checked: key in question }), label))
    : field(label, el("input", { name: key, value: question[key] || "", placeholder: usual })))), el("button", { class: "main", type: "submit", id: "go" }, "Run"));
  const start = async () => {
    const current = values(form), options = {};
    for (const [key, usual] of STUDY_FIELDS[name] || []) if (current[key]) options[key] = usual === true ? true : current[key];
    if (name === "flexible-plans") for (const [key, usual] of STUDY_FIELDS[name]) options[key] = current[key] = current[key] || usual;
    show(name, current);
    await job(answer, `/api/study/${name}`, { options }, (found, command) => studyAnswer(name, found, command));
  };
  main().replaceChildren(el("h1", {}, PAGES[name]), el("p", {}, `${about.about[0].toUpperCase()}${about.about.slice(1)}.`), el("div", { class: "columns" }, form, answer));
  if ((name !== "flexible-plans" && name !== "subnetworks") || Object.keys(question).length) await start(); // an address with a question is a view
  else answer.replaceChildren(el("p", {}, "It takes minutes: press Run. It goes on in the background and can be cancelled."));
}
function studyAnswer(name, found, command) {
  const drawn = figures(found.figures), tables = Object.entries(found.tables);
  return [el("ul", {}, found.lines.slice(0, 40).map((each) => el("li", {}, each))), drawn, ...tables.map(([title, rows]) => table(named(title), rows, columnsOf(rows))), leaving(name, command, found, () => (tables[0] || ["", []])[1], drawn.charts)];
}
const EXAMPLE = `model = "llama3-8b"
cluster = "h100:64"
batch = 256

[[axis]]
field = "cluster.count"
values = [8, 16, 32, 64, 128, 256]

[[axis]]
name = "bandwidth"
field = "cluster.network.levels.1.bandwidth"
ratio = [0.25, 0.5, 1, 2, 4]
`;
async function sweepPage(question) {
  const answer = el("div", { id: "answer" }), text = el("textarea", { name: "toml", spellcheck: "false", "aria-label": "The sweep as TOML" });
  text.value = question.toml ? await unpacked(question.toml) : EXAMPLE;
  const start = async () => { show("sweep", { toml: await packed(text.value) }); const toml = text.value; await job(answer, "/api/sweep", { toml }, (found, command) => sweepAnswer(found, command, toml)); };
  main().replaceChildren(el("h1", {}, "Explore a design space"), el("div", { class: "columns" }, el("form", { onsubmit: (event) => { event.preventDefault(); start(); } }, el("label", {}, "The sweep (see docs/sweep.md)", text), el("button", { class: "main", type: "submit", id: "go" }, "Run")), answer));
  if (question.toml) await start();
}
function sweepAnswer(found, command, toml) {
  const rows = found.rows, numeric = Object.keys(rows[0] || {}).filter((key) => rows.some((row) => typeof row[key] === "number"));
  const chart = el("div", { class: "chart", tabindex: 0, "aria-label": "The sweep" });
  const x = select("x", numeric, found.axes.find((each) => numeric.includes(each)) || numeric[0]), y = select("y", numeric, numeric.includes("tokens_per_s") ? "tokens_per_s" : numeric[numeric.length - 1]), by = select("by", ["", ...found.axes], found.axes[1] || "", "(none)");
  const draw = () => {
    const groups = new Map();
    for (const row of rows) { if (typeof row[x.value] !== "number" || typeof row[y.value] !== "number") continue; const key = by.value ? `${by.value} ${row[by.value]}` : y.value; groups.set(key, [...(groups.get(key) || []), [row[x.value], row[y.value]]]); }
    Charts.draw(chart, { name: "sweep", title: found.name, x: { title: named(x.value) }, y: { title: named(y.value) }, bands: [], series: [...groups].slice(0, 24).map(([name, points]) => { points.sort((a, b) => a[0] - b[0]); return { name, kind: "line", x: points.map((p) => p[0]), y: points.map((p) => p[1]) }; }) });
  };
  [x, y, by].forEach((each) => each.addEventListener("change", draw));
  requestAnimationFrame(draw);
  return [el("p", {}, `${found.points.toLocaleString("en")} points, ${rows.length.toLocaleString("en")} rows.`), el("div", { class: "row" }, field("Across", x), field("Up", y), field("A line for each", by)), chart, table("Rows", rows, columnsOf(rows)), leaving("sweep", command, found, () => rows, () => [["sweep", chart]], [el("button", { type: "button", onclick: () => save("sweep.toml", toml, "application/toml") }, "sweep.toml")])];
}
let running = null;
async function job(place, path, body, paint) {
  if (running) running.close();
  const bar = el("progress", { max: 1, "aria-label": "Progress" }), words = el("p", { class: "small", id: "told" }, "Starting…");
  let started;
  try { started = await ask(path, body); } catch (error) { place.replaceChildren(problem(error)); return; }
  const cancel = el("button", { type: "button", id: "cancel", onclick: () => fetch(`/api/jobs/${started.job}`, { method: "DELETE" }) }, "Cancel");
  place.replaceChildren(el("div", {}, bar, words, cancel));
  await new Promise((resolve) => {
    const events = running = new EventSource(`/api/jobs/${started.job}/events`);
    const end = () => { events.close(); if (running === events) running = null; resolve(); };
    events.onmessage = async (event) => {
      const status = JSON.parse(event.data);
      if (status.planned) { bar.max = status.planned; bar.value = status.done; words.textContent = `${status.done.toLocaleString("en")} of ${status.planned.toLocaleString("en")} ${status.text}`; } else words.textContent = status.text || "Under way…";
      if (status.state === "running" || status.state === "waiting") return;
      end();
      if (status.state === "done") { try { place.replaceChildren(...paint(await ask(`/api/jobs/${started.job}/result`), started.command)); } catch (error) { place.replaceChildren(problem(error)); } } else if (status.state === "cancelled") place.replaceChildren(el("p", { id: "cancelled" }, "Cancelled.")); else place.replaceChildren(problem(new Error(status.error)));
    };
    events.onerror = () => { end(); place.replaceChildren(problem(new Error("the server is gone; start it again"))); };
  });
}

// --- the API, documented ---
async function apiPage() {
  const api = await ask("/api/openapi.json"), parts = [];
  for (const [path, methods] of Object.entries(api.paths)) for (const [method, facts] of Object.entries(methods)) {
    const reference = facts.requestBody && facts.requestBody.content["application/json"].schema.$ref;
    const schema = reference && api.components.schemas[reference.split("/").pop()];
    const type = (each) => each.type || (each.enum ? "one of " + each.enum.join(", ") : (each.anyOf || []).map((one) => one.type || (one.enum || []).join(", ")).filter((one) => one !== "null").join(" or "));
    parts.push(el("section", {}, el("h2", {}, `${method.toUpperCase()} ${path}`), el("p", {}, facts.summary || ""), schema ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "field"), el("th", { class: "left" }, "type"), el("th", { class: "left" }, "what"))), el("tbody", {}, Object.entries(schema.properties).map(([name, each]) => el("tr", {}, el("td", {}, name), el("td", { class: "left" }, type(each)), el("td", { class: "left" }, each.description || "")))))) : null));
  }
  main().replaceChildren(el("h1", {}, "The API"), el("p", {}, "JSON in, JSON out; the schema: ", el("a", { href: "/api/openapi.json" }, "/api/openapi.json"), ". An error is ", el("code", {}, '{"error": "thing value: rule; remedy"}'), "."), ...parts);
}

// --- going from page to page ---
async function route() {
  const page = location.pathname.slice(1) || "plan";
  document.title = `Trainwright: ${PAGES[page] || page}`;
  for (const link of document.querySelectorAll("#nav a")) { if (link.dataset.page === page) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
  for (const chart of document.querySelectorAll(".chart")) Charts.forget(chart);
  if (running) { running.close(); running = null; }
  try {
    if (page === "plan") await planPage(asked());
    else if (page === "timeline") await timelinePage(asked());
    else if (page === "compare") await comparePage(asked());
    else if (page === "sweep") await sweepPage(asked());
    else if (page === "api") await apiPage();
    else await studyPage(page, asked());
  } catch (error) { main().replaceChildren(problem(error)); }
}
function go(page, question = {}) { show(page, question); main().focus(); window.scrollTo(0, 0); route(); }
function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
}
theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", name); theme(name); route();
});
document.getElementById("nav").append(...Object.entries(PAGES).map(([page, title]) => el("a", { href: `/${page}`, "data-page": page, onclick: (event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); go(page); } }, title)));
window.addEventListener("popstate", route);
route();
