// The answer for a recommender: how its tables lie on devices, and how many instances share a cluster.
"use strict";

const laid = ({ sharding }) => `tables=${sharding.tables} rows=${sharding.rows} columns=${sharding.columns}`;
function recommenderAnswer(found) {
  const all = [...found.plans.slice(0, 1), ...found.instances], drawn = figures(found.figures);
  const best = all.reduce((one, other) => (other.samples_per_s > one.samples_per_s ? other : one));
  const columns = [
    { name: "sharding", of: laid, left: true }, { name: "devices each", of: (row) => row.devices }, { name: "instances", of: (row) => row.instances },
    { name: "step", of: (row) => row.step_s, show: Charts.seconds }, { name: "range", of: (row) => `${Charts.seconds(row.low_s)} – ${Charts.seconds(row.high_s)}`, key: (row) => row.low_s },
    { name: "samples/s in all", of: (row) => row.samples_per_s, show: (v) => Charts.si(v) }, { name: "MFU", of: (row) => row.mfu, show: (v) => `${(100 * v).toFixed(1)} %` },
    { name: "exposed", of: (row) => row.exposed_fraction, show: (v) => `${(100 * v).toFixed(1)} %` }, { name: "memory", of: (row) => row.total_bytes, show: (v) => `${(v / GIB).toFixed(1)} GiB` },
    { name: "$/G samples", of: (row) => row.dollars_per_billion_samples, show: (v) => v.toPrecision(3) }, { name: "J/sample", of: (row) => row.joules_per_sample, show: (v) => v.toPrecision(3) },
  ];
  const rows = () => [...found.plans, ...found.instances].map((each) => Object.fromEntries(["plan", "devices", "instances", "global_batch", "step_s", "low_s", "high_s", "samples_per_s", "mfu", "exposed_fraction", "total_bytes", "power_w", "dollars_per_billion_samples", "joules_per_sample"].map((name) => [name, each[name]])));
  const far = Object.entries(best.tier_bytes).filter(([, held]) => held > 0).map(([tier, held]) => `${(held / GIB).toFixed(1)} GiB of tables in ${tier}`).join(", ");
  return [
    el("div", { class: "facts" },
      fact(laid(best), `the most samples${best.instances > 1 ? `: ${best.instances} instances of ${best.devices} devices` : `: all ${best.devices} devices together`}`),
      fact(Charts.seconds(best.step_s), `a step (${Charts.seconds(best.low_s)} – ${Charts.seconds(best.high_s)})`), fact(`${Charts.si(best.samples_per_s)} samples/s`, `${Charts.si(best.samples_per_s_per_device)} a device`),
      fact(`${(100 * best.mfu).toFixed(1)} %`, "MFU"), fact(`${(best.total_bytes / GIB).toFixed(1)} GiB`, `of ${(best.capacity_bytes / GIB).toFixed(1)} on the fullest device${far ? `; ${far}` : ""}`),
      fact(`$${best.dollars_per_billion_samples.toPrecision(3)}`, "a billion samples"), fact(Charts.si(best.power_w, "W"), `${best.joules_per_sample.toPrecision(3)} J a sample`)),
    found.plans.length ? table(`${found.plans.length} best shardings over all devices`, found.plans, columns) : el("p", {}, "No sharding over all devices fits or divides them."),
    table("Instances beside each other, the best of each size", found.instances, columns), drawn, assumptions(found.notes),
    leaving("plan", found.command, found, rows, drawn.charts),
  ];
}
