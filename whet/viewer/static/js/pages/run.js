import { colour, lineChart } from "../charts.js";
import { duration, empty, estimate, h, isEstimate, link, metricValue, moment, number, percent, put, table } from "../dom.js";
import { METRICS } from "../metrics.js";

export async function render(main, context) {
  const { run } = context.params;
  if (!run) return put(main, empty("No runs here yet", "There is nothing to look at."));
  let chart = null;
  async function draw() {
    const { data, isNew } = await context.ask("run", { run });
    if (!isNew && main.dataset.run === run) return;
    main.dataset.run = run;
    chart?.close();
    chart = null;
    if (data.headline) {
      const { data: metrics } = await context.ask("metrics", { run, names: data.headline });
      const [steps, values] = metrics.series[data.headline] ?? [[], []];
      if (steps.length > 1) chart = lineChart({ title: data.headline, about: METRICS[data.headline], format: (value) => metricValue(data.headline, value), lines: [{ name: run, steps, values, colour: colour(0) }] });
    }
    put(main, page(data, chart));
  }
  delete main.dataset.run;
  await draw();
  context.signal.addEventListener("abort", () => chart?.close());
  context.poll(draw);
}

function page(run, chart) {
  const facts = [
    ["State", h("span", { class: `state ${run.state}` }, run.state)],
    ["Kind", run.kind],
    ["Task", run.task],
    ["Algorithm", run.algo],
    ["Model", run.model],
    ["Seed", run.seed],
    ["Steps", run.steps ? `${run.step} of ${run.steps}` : run.step || null],
    ["A step takes", run.seconds_per_step && duration(run.seconds_per_step)],
    ["Time in steps", run.seconds && duration(run.seconds)],
    ["Started", run.started && moment(run.started)],
  ].filter(([, value]) => value !== null && value !== undefined);
  return [
    h("div", { class: "head" }, h("h1", {}, run.id === "." ? "This folder" : run.id),
      h("div", { class: "actions" }, run.metrics.length > 0 && link("curves", { runs: run.id }, "Curves"),
        [...run.sets].sort((a, b) => b.localeCompare(a)).map((set) => link("rollouts", { run: run.id, set }, run.sets.length > 1 ? `Rollouts: ${set}` : "Rollouts")),
        run.origin === "whet" && link("settings", { a: run.id }, "Settings"))),
    run.failure && h("details", { class: "failure" }, h("summary", {}, "This run failed"), h("pre", {}, run.failure)),
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Facts"), facts_list(facts)),
      chart && h("section", {}, h("h2", {}, "How it goes"), chart.element),
    ),
    run.evals.length > 0 && h("section", {}, h("h2", {}, run.kind === "eval" ? "Evaluations" : "Validations"), evaluations(run), run.kind !== "eval" && h("p", { class: "quiet small" }, "Validations keep their scores; their responses are not stored.")),
    run.events.length > 0 && h("section", {}, h("h2", {}, "Events"), events(run.events, run.provenance.command)),
    Object.keys(run.provenance).length > 0 && h("section", {}, h("h2", {}, "Made with"), facts_list(madeWith(run.provenance))),
  ];
}

export function facts_list(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function evaluations(run) {
  const rows = run.evals.filter((item) => item.result && typeof item.result === "object");
  const isEval = run.kind === "eval";
  const names = [...new Set(rows.flatMap((item) => Object.keys(item.result.pass_at ?? {})))];
  return table([isEval ? "Answers" : "After step", ...names.map((k) => ({ text: `pass@${k}`, class: "num" })), { text: "Tokens", class: "num" }, { text: "Cut", class: "num" }, { text: "Problems", class: "num" }],
    rows.map(({ step, result }) => h("tr", {},
      h("td", {}, isEval ? (step === "000000" ? "sampled" : step === "000001" ? "greedy" : step) : String(Number(step))),
      names.map((k) => h("td", { class: "num" }, isEstimate(result.pass_at?.[k]) ? estimate(result.pass_at[k]) : "–")),
      h("td", { class: "num" }, number(result.tokens?.mean, 3)),
      h("td", { class: "num" }, percent(result.unfinished?.mean)),
      h("td", { class: "num" }, number(result.num_problems)))), { label: "Evaluations" });
}

function madeWith({ command, changed, started, ...rest }) {
  return [
    ...Object.entries(rest).filter(([, value]) => value !== null).map(([name, value]) => [name, String(value)]),
    changed !== null && changed !== undefined && ["uncommitted changes", changed ? "yes" : "none"],
    command && ["command", h("span", { class: "mono command" }, String(command).split(" ").map((word) => [h("span", { class: "word" }, word), " "]))],
    started && ["started", moment(started)],
  ].filter(Boolean);
}

// The command is left out where it is the one that stands below.
function events(rows, command) {
  return table(["Time", "Event", "Details"], rows.slice(-30).reverse().map((row) => {
    const { time, event, ...rest } = row;
    if (rest.command === command) delete rest.command;
    return h("tr", {}, h("td", { class: "nowrap quiet" }, String(time ?? "").slice(0, 19).replace("T", " ")), h("td", {}, String(event).replaceAll("_", " ")),
      h("td", { class: "break" }, Object.entries(rest).map(([k, v]) => `${k}: ${typeof v === "object" ? `${Object.keys(v ?? {}).length}` : v}`).join(" · ")));
  }), { label: "Events", class: "events" });
}
