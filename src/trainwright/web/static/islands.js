// Sites joined by slow links, and islands that train apart: what is asked of them, and the answer.
"use strict";

const severalSites = (question) => Boolean(question.sites) && question.sites !== "1";
const unspaced = (text) => text.replace(/\s+/g, "").replace(/b\/s$/, "bps");
const TWO_SITES = { model: "llama3-8b", device: "h100-sxm-80gb", count: "64", sites: "2", link: "10Gbps", algorithm: "diloco,ist" }; // examples/two_sites.toml

// --- asking ---
const inner = (page, question, words) => el("a", { href: `/${page}${Object.keys(question).length ? "?" + new URLSearchParams(question) : ""}`, onclick: (event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); go(page, question); } }, words);
function siteFields(question) {
  const told = el("output", { class: "small wide", id: "all-devices" });
  const box = el("details", { class: "wide", open: severalSites(question) }, el("summary", {}, "Several sites, joined by slow links"), el("div", { class: "pair" },
    field("Sites", number("sites", question.sites || "", { max: 4096, placeholder: "1" })),
    field("Link of a site", el("input", { name: "link", value: question.link || "10Gbps", placeholder: "10Gbps", autocomplete: "off" })),
    field("Latency of the link", el("input", { name: "link_latency", value: question.link_latency || "", placeholder: "5ms", autocomplete: "off" })), told));
  const paint = () => {
    const { count, sites } = box.closest("form").elements, many = Number(sites.value) || 1;
    told.textContent = many > 1 ? `${Number(count.value).toLocaleString("en")} devices at each of ${many} sites, which share its link: ${(many * count.value).toLocaleString("en")} in all` : "One site.";
  };
  requestAnimationFrame(() => { const form = box.closest("form"); if (form) { form.addEventListener("input", paint); paint(); } });
  return box;
}
function algorithmFields(question, known) {
  const all = el("input", { type: "hidden", name: "algorithm", value: question.algorithm || "" });
  const stated = new Map((question.algorithm || "").split(",").map((each) => each.trim().split(/\s+/)).map(([name, ...words]) => [name, words.join(" ")]));
  const rows = known.map(({ name, about, hyperparameters }) => {
    const ticked = el("input", { type: "checkbox", id: `use-${name}`, checked: stated.has(name) });
    const words = el("input", { value: stated.get(name) || "", placeholder: hyperparameters.split(" ")[0], title: hyperparameters, "aria-label": `hyperparameters of ${name}, like ${hyperparameters}`, autocomplete: "off" });
    words.addEventListener("input", () => { if (words.value) ticked.checked = true; });
    return { name, ticked, words, label: el("label", { class: "tick", title: about }, ticked, name) };
  });
  const box = el("details", { class: "wide", open: Boolean(question.algorithm), oninput: () => { all.value = rows.filter((each) => each.ticked.checked).map((each) => `${each.name} ${each.words.value.trim().replace(/\s+/g, " ")}`.trim()).join(","); } },
    el("summary", {}, "Training apart, beside exact training"), all,
    el("div", { class: "pair" }, rows.flatMap((each) => [each.label, each.words]), field("Islands", number("islands", question.islands || "", { min: 2, max: 65536, placeholder: "by the network" }))),
    el("p", { class: "small" }, "Islands learn alone and meet every so many steps (rounds of 10 to 500 are tried unless every= is stated), or tell compressed gradients in each. It puts the loss at risk; ", inner("subnetworks", {}, "the study of subnetworks"), " measured how much, on small networks."),
    el("p", { class: "small" }, "Example: ", inner("plan", TWO_SITES, "two sites of 64 H100, 10 Gb/s between them")));
  return box;
}

// --- the answer ---
const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} %`;
function riskText(risk) {
  if (!risk) return "unknown: not measured";
  const every = (risk.setting.match(/every=(\d+)/) || [])[1];
  return `${signed(risk.excess_loss)} (${signed(risk.low)} to ${signed(risk.high)}); small ${risk.network}, ${risk.workers} workers${every ? `, every ${every}` : ""}`;
}
function islandsAnswer(found) {
  const best = found.plans[0], drawn = figures(found.island_figures);
  const rows = found.algorithms.map((each, index) => ({ ...each, what: `${each.name}, ${each.islands} islands, every ${each.every > 1 ? each.every : "step"}`, sent: each.sent_bytes_per_step, risk: found.beside[index].risk }));
  const alone = found.exact_on_one_island;
  if (alone) rows.unshift({ ...alone, what: "exact, one island", sent: 0, exact: true });
  if (best) rows.unshift({ ...best, what: "exact", sent: found.exact_sent_bytes_per_step, exact: true });
  const columns = [
    { name: "training", of: (row) => row.what, left: true },
    { name: "loss above exact training's, measured", of: (row) => (row.exact ? "none" : riskText(row.risk)), key: (row) => (row.exact ? 0 : row.risk ? row.risk.excess_loss : Infinity), left: true },
    { name: "step", of: (row) => row.step_s, show: Charts.seconds },
    { name: "sent between islands a step", of: (row) => row.sent, show: (v) => (v === null ? "not counted" : Charts.si(v, "B")) },
    { name: "memory", of: (row) => row.total_bytes, show: (v) => `${(v / GIB).toFixed(1)} GiB` },
    { name: "cost", of: (row) => row.budget.dollars, show: (v) => `$${Math.round(v).toLocaleString("en")}` },
    { name: "days", of: (row) => row.budget.days, show: (v) => v.toLocaleString("en", { maximumFractionDigits: 1 }) },
    { name: "tokens/s", of: (row) => row.tokens_per_s, show: (v) => Charts.si(v) },
    { name: "MFU", of: (row) => row.mfu, show: (v) => `${(100 * v).toFixed(1)} %` },
    { name: "kWh", of: (row) => row.budget.kwh, show: (v) => Math.round(v).toLocaleString("en") },
    { name: "range of the step", of: (row) => `${Charts.seconds(row.low_s)} – ${Charts.seconds(row.high_s)}`, key: (row) => row.low_s },
  ];
  const [advice, ...more] = found.advice;
  const parts = [
    el("section", { id: "advice" }, el("h2", {}, "What to choose"), el("p", {}, el("b", {}, advice)), more.map((each) => el("p", {}, each))),
    best ? null : el("p", { id: "no-exact" }, "Exact training does not fit this cluster."),
    rows.length ? el("div", { id: "islands" }, table("Exact training and islands", rows, columns)) : null,
    ...Object.entries(found.refused).map(([text, why]) => el("p", { class: "error" }, `${text}: ${why}`)),
    drawn,
    el("section", { id: "measured" }, el("h2", {}, "How they train, and what was measured of their loss"), found.beside.map((each) => el("div", {}, el("h3", {}, each.risky ? `${each.name}: not known to keep up with exact training's loss` : each.name), el("ul", { class: "small" }, each.lines.map((line) => el("li", {}, line))))),
      el("p", {}, "How it was measured: ", inner("subnetworks", {}, "Subnetworks"), ".")),
  ].filter(Boolean);
  parts.charts = drawn.charts;
  return parts;
}
// As the command's CSV: exact training, and a row for each measurement of each algorithm.
function islandRows(found) {
  const row = (each, more) => ({ name: each.name || "exact", algorithm: each.algorithm || "", islands: each.islands, every: each.every, strategy: each.strategy.text, step_s: each.step_s, low_s: each.low_s, high_s: each.high_s, tokens_per_s: each.tokens_per_s, mfu: each.mfu, sent_bytes_per_step: each.sent_bytes_per_step, total_bytes: each.total_bytes, power_w: each.power_w, days: each.budget.days, dollars: each.budget.dollars, kwh: each.budget.kwh, ...more });
  const risk = (each) => ({ measured_on: each ? each.network : "", workers: each ? each.workers : "", setting: each ? each.setting : "", excess_loss: each ? each.excess_loss : "", low: each ? each.low : "", high: each ? each.high : "" });
  const alone = found.exact_on_one_island ? [row(found.exact_on_one_island, { name: "exact, one island", sent_bytes_per_step: 0, ...risk(null) })] : [];
  return [...found.plans.slice(0, 1).map((each) => row(each, { sent_bytes_per_step: found.exact_sent_bytes_per_step, ...risk(null) })), ...alone, ...found.algorithms.flatMap((each) => (each.risks.length ? each.risks : [null]).map((one) => row(each, risk(one))))];
}
const planFiles = (found) => (found.algorithms || []).map((each) => el("button", { type: "button", onclick: () => save(`${each.name}.plan`, each.plan, "text/plain") }, `${each.name}.plan`));
