import { COLOURS, colour, lineChart, smooth, summarise } from "../charts.js";
import { empty, field, h, link, metricValue, number, put, select } from "../dom.js";
import { METRICS } from "../metrics.js";

/* global uPlot */

const FIRST = ["reward/mean", "score/correct", "validation/pass@1", "loss", "sft/token_loss", "length/mean", "length/unfinished", "policy/entropy", "policy/kl", "policy/engine_gap", "train/grad_norm", "groups/equal", "preference/accuracy", "distill/kl"];
const MOST = 24;

export async function render(main, context) {
  const { params } = context;
  const all = context.runs().filter((run) => run.step > 0 || (params.runs ?? "").split(",").includes(run.id));
  if (!all.length) return put(main, empty("No curves yet", "Runs that train log metrics at every step; they appear here as they do."));
  if (!params.runs) {
    const like = all.find((run) => run.state === "running") ?? all.find((run) => run.kind === "rl") ?? all[0];
    context.set({ runs: all.filter((run) => run.kind === like.kind && run.task === like.task).slice(0, COLOURS).map((run) => run.id).join(",") });
  }
  const charts = new Map();
  const grid = h("div", { class: "charts" });
  const legend = h("ul", { class: "legend", "aria-label": "Runs shown" });
  const status = h("p", { class: "quiet small", role: "status" });
  let loaded = [];
  let names = [];

  const ids = () => params.runs.split(",").filter(Boolean);
  const runsById = () => new Map(context.runs().map((run) => [run.id, run]));

  function wanted() {
    const words = (params.q ?? "").trim().toLowerCase();
    if (words) return names.filter((name) => name.toLowerCase().includes(words)).slice(0, MOST);
    const first = FIRST.filter((name) => names.includes(name));
    return params.all ? names.slice(0, 60) : first.length ? first : names.slice(0, 12);
  }

  async function load() {
    const known = await Promise.all(ids().map((run) => context.ask("metrics", { run })));
    names = [...new Set(known.flatMap(({ data }) => data.names))].sort();
    const list = wanted().join(",");
    const answers = await Promise.all(ids().map((run) => context.ask("metrics", { run, names: list })));
    const isNew = answers.some((answer) => answer.isNew) || !loaded.length;
    loaded = answers.map((answer, i) => ({ id: ids()[i], step: answer.data.step, series: answer.data.series, intervals: answer.data.intervals }));
    return isNew;
  }

  function linesOf(metric) {
    const weight = Number(params.smooth ?? 0);
    const lines = [];
    groups().forEach((members, i) => {
      const single = members.map((id) => loaded.find((run) => run.id === id)).filter((run) => run?.series[metric]?.[0].length)
        .map((run) => lineOf(run, metric, weight, colour(i)));
      if (single.length < 2) lines.push(...single);
      else lines.push({ ...together(single), name: groupName(members), colour: colour(i), width: 2.2 });
    });
    return lines;
  }

  // An interval is drawn where it is of the very values that are shown.
  function lineOf(run, metric, weight, tint) {
    const [steps, values] = run.series[metric];
    const known = weight || params.seeds === "together" ? null : run.intervals?.[metric];
    const at = known ? new Map(known[0].map((step, i) => [step, i])) : null;
    const band = at && steps.every((step) => at.has(step)) ? [1, 2].map((side) => steps.map((step) => known[side][at.get(step)])) : null;
    return { name: run.id, steps, values: smooth(values, weight), colour: tint, width: 1.7, band };
  }

  function together(members) {
    const joined = uPlot.join(members.map((line) => [line.steps, line.values]));
    const { mean, low, high } = summarise(joined.slice(1));
    return { steps: joined[0], values: mean, band: [low, high] };
  }

  // Runs that are drawn as one line: those that differ in their seed alone, if they are to be.
  function groups() {
    if (params.seeds !== "together") return ids().map((id) => [id]);
    const byKey = new Map();
    for (const id of ids()) {
      const key = runsById().get(id)?.group ?? id;
      byKey.set(key, [...(byKey.get(key) ?? []), id]);
    }
    return [...byKey.values()];
  }

  function groupName(members) {
    const seeds = members.map((id) => runsById().get(id)?.seed ?? "?");
    return `${members[0]}, mean of seeds ${seeds.join(", ")}`;
  }

  const range = () => (params.x ? params.x.split("..").map(Number) : null);
  const setRange = (next) => { context.set({ x: next ? next.map((value) => Math.round(value * 10) / 10).join("..") : "" }); draw(); };

  function draw() {
    const show = wanted().filter((metric) => loaded.some((run) => run.series[metric]));
    for (const [metric, chart] of charts) {
      if (!show.includes(metric)) { chart.close(); chart.element.remove(); charts.delete(metric); }
    }
    for (const metric of show) {
      const lines = linesOf(metric);
      if (charts.has(metric)) charts.get(metric).update(lines, range());
      else {
        charts.set(metric, lineChart({ title: metric, about: METRICS[metric], format: (value) => metricValue(metric, value), lines, range: range(), onRange: setRange }));
      }
    }
    if ([...grid.children].map((item) => item.dataset.metric).join() !== show.join()) put(grid, show.map((metric) => charts.get(metric).element));
    if (!show.length) put(grid, names.length ? empty("No such metric", "The names are those of the page on metrics in the documentation.")
      : empty("No curves", "These runs log no metrics: only training does."));
    drawLegend();
    status.hidden = !show.length;
    status.textContent = `${show.length} of ${names.length} metrics, up to step ${Math.max(0, ...loaded.map((run) => run.step))}${range() ? `, steps ${range().map((value) => number(value, 4)).join(" to ")}: double-click shows all` : ""}${show.includes("validation/pass@1") && params.seeds !== "together" ? ". The band around validation/pass@1 is its 95 % interval." : ""}`;
  }

  function drawLegend() {
    const rest = all.filter((run) => !ids().includes(run.id));
    const entry = (id) => h("span", { class: "nowrap" }, link("run", { run: id }, id), " ",
      h("button", { class: "plain", type: "button", "aria-label": `Leave out ${id}`, onclick: () => { context.set({ runs: ids().filter((other) => other !== id).join(",") || id }, true); reload(); } }, "×"));
    put(legend, groups().map((members, i) => h("li", {},
      h("span", { class: "swatch", vars: { background: colour(i) } }), members.map(entry),
      members.length > 1 && h("span", { class: "quiet small" }, "mean, and from the lowest to the highest"))),
      rest.length > 0 && h("li", {}, select("add", "", [["", "Add a run…"], ...rest.map((run) => [run.id, run.id])], (id) => { if (id) { context.set({ runs: [...ids(), id].join(",") }, true); reload(); } })));
    legend.querySelector("select")?.setAttribute("aria-label", "Add a run");
  }

  async function reload() { await load(); draw(); }

  const smoothing = h("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: params.smooth ?? 0, oninput: (event) => { context.set({ smooth: Number(event.target.value) || "" }); draw(); } });
  put(main, h("div", { class: "head" }, h("h1", {}, "Curves"),
    h("input", { type: "search", placeholder: "Metrics, such as policy/", value: params.q ?? "", "aria-label": "Filter metrics", oninput: (event) => { context.set({ q: event.target.value }); reload(); } }),
    field("Smoothing", smoothing),
    field("Seeds", select("seeds", params.seeds, [["", "apart"], ["together", "together"]], (value) => { context.set({ seeds: value }); draw(); })),
    field("Metrics", select("all", params.all, [["", "main"], ["1", "all"]], (value) => { context.set({ all: value }); reload(); })),
    params.x && h("button", { type: "button", onclick: () => setRange(null) }, "Whole range")),
    legend, grid, status);
  await reload();
  context.signal.addEventListener("abort", () => charts.forEach((chart) => chart.close()));
  context.poll(async () => { if (await load()) draw(); });
}
