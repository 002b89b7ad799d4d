import { colour, lineChart, stackedBar } from "../charts.js";
import { METRICS } from "../metrics.js";
import { duration, empty, h, number, percent, put, table } from "../dom.js";

const PHASES = [["time/sample", "sampling"], ["time/grade", "waiting for grades"], ["time/score", "reference and values"], ["time/update", "training"]];
const NAMES = [...PHASES.map(([name]) => name), "time/step", "engine/tokens_per_s", "engine/slots_busy", "memory/peak_gb"];

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No runs here yet", "There is nothing to time."));
  const charts = [];
  let isDrawn = false;
  async function draw() {
    const { data, isNew } = await context.ask("metrics", { run: params.run, names: NAMES.join(",") });
    if (isDrawn && !isNew) return;
    isDrawn = true;
    charts.splice(0).forEach((chart) => chart.close());
    put(main, page(data, charts));
  }
  await draw();
  context.signal.addEventListener("abort", () => charts.forEach((chart) => chart.close()));
  context.poll(draw);
}

function page(data, charts) {
  const steps = data.series["time/step"];
  if (!steps) return [h("div", { class: "head" }, h("h1", {}, "Time")), empty("No times yet", "Runs that train log where the time of each step went.")];
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const total = sum(steps[1]);
  const parts = PHASES.filter(([name]) => data.series[name]).map(([name, words], i) => ({ name: words, value: sum(data.series[name][1]), colour: colour(i) }));
  const rest = Math.max(total - sum(parts.map((part) => part.value)), 0);
  parts.push({ name: "the rest", value: rest, colour: "var(--rule)" });
  const lines = PHASES.filter(([name]) => data.series[name]).map(([name, words], i) => ({ name: words, steps: data.series[name][0], values: data.series[name][1], colour: colour(i) }));
  charts.push(lineChart({ title: "seconds of each step", lines }));
  for (const name of ["engine/tokens_per_s", "engine/slots_busy", "memory/peak_gb"]) {
    if (data.series[name]) charts.push(lineChart({ title: name, about: METRICS[name], lines: [{ name, steps: data.series[name][0], values: data.series[name][1], colour: colour(0) }] }));
  }
  const longest = parts.reduce((a, b) => (b.value > a.value ? b : a));
  return [
    h("div", { class: "head" }, h("h1", {}, "Time")),
    h("p", { class: "lead" }, `${duration(total)} in ${steps[1].length.toLocaleString("en")} steps, ${number(total / steps[1].length, 3)} s each. Most went into ${longest.name}: ${percent(longest.value / (total || 1))}.`),
    stackedBar(parts, (value) => duration(value)),
    table(["Part of a step", { text: "All steps", class: "num" }, { text: "Share", class: "num" }, { text: "Last step", class: "num" }], parts.map((part) => {
      const series = data.series[PHASES.find(([, words]) => words === part.name)?.[0]];
      return h("tr", {}, h("td", {}, h("span", { class: "swatch", vars: { background: part.colour } }), " ", part.name), h("td", { class: "num" }, duration(part.value)), h("td", { class: "num" }, percent(part.value / (total || 1))), h("td", { class: "num" }, series ? `${series[1].at(-1).toFixed(2)} s` : "–"));
    }), { label: "Parts of a step" }),
    h("div", { class: "charts" }, charts.map((chart) => chart.element)),
  ];
}
