import { COLOURS, colour, lineChart, meanOf, smooth } from "../charts.js";
import { empty, field, h, link, number, put, select } from "../dom.js";

/* global uPlot */

const FIRST = ["reward/mean", "score/correct", "validation/pass@1", "loss", "sft/token_loss", "length/mean", "length/unfinished", "policy/entropy", "policy/kl", "policy/engine_gap", "train/grad_norm", "groups/equal", "preference/accuracy", "distill/kl"];
const MOST = 24;

export async function render(main, context) {
  const { params } = context;
  const all = context.runs().filter((run) => run.step > 0);
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
    loaded = answers.map((answer, i) => ({ id: ids()[i], step: answer.data.step, series: answer.data.series }));
    return isNew;
  }

  function linesOf(metric) {
    const weight = Number(params.smooth ?? 0);
    const groups = groupOf();
    const lines = [];
    const byGroup = new Map();
    loaded.forEach((run, i) => {
      const series = run.series[metric];
      if (!series || !series[0].length) return;
      const isTogether = params.seeds === "together";
      const tint = colour(isTogether ? groups.get(run.id) : i);
      lines.push({ name: run.id, steps: series[0], values: smooth(series[1], weight), colour: tint, width: isTogether ? 1 : 1.7, alpha: isTogether ? 0.45 : 1 });
      if (isTogether) byGroup.set(groups.get(run.id), [...(byGroup.get(groups.get(run.id)) ?? []), lines.at(-1)]);
    });
    for (const [group, members] of byGroup) {
      if (members.length < 2) continue;
      const joined = uPlot.join(members.map((line) => [line.steps, line.values]));
      lines.push({ name: `mean of ${members.length}`, steps: joined[0], values: meanOf(joined.slice(1)), colour: colour(group), width: 2.6 });
    }
    return lines;
  }

  // Runs that differ in their seed alone share a number.
  function groupOf() {
    const keys = new Map();
    return new Map(ids().map((id) => {
      const key = runsById().get(id)?.group ?? id;
      if (!keys.has(key)) keys.set(key, keys.size);
      return [id, keys.get(key)];
    }));
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
        charts.set(metric, lineChart({ title: metric, lines, range: range(), onRange: setRange }));
      }
    }
    if ([...grid.children].map((item) => item.dataset.metric).join() !== show.join()) put(grid, show.map((metric) => charts.get(metric).element));
    if (!show.length) put(grid, empty("No such metric", "The names are those of the page on metrics in the documentation."));
    drawLegend();
    status.textContent = `${show.length} of ${names.length} metrics, up to step ${Math.max(0, ...loaded.map((run) => run.step))}${range() ? `, steps ${range().map((value) => number(value, 4)).join(" to ")}: double-click shows all` : ""}`;
  }

  function drawLegend() {
    const groups = groupOf();
    const rest = all.filter((run) => !ids().includes(run.id));
    put(legend, ids().map((id, i) => h("li", {},
      h("span", { class: "swatch", vars: { background: colour(params.seeds === "together" ? groups.get(id) : i) } }),
      link("run", { run: id }, id), " ",
      h("button", { class: "plain", type: "button", "aria-label": `Leave out ${id}`, onclick: () => { context.set({ runs: ids().filter((other) => other !== id).join(",") || id }, true); reload(); } }, "×"))),
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
