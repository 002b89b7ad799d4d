import { address, empty, h, level, number, percent, put, table } from "../dom.js";
import { line, loadMath } from "../text.js";
import { progress, setChips, setOf } from "./rollouts.js";

const BANDS = 5;
const CELL_PX = 57;

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No rollouts yet", "The map is drawn of graded rollouts."));
  await loadMath();
  const body = h("div", {});
  const chips = h("div", { class: "facets" });
  put(main, h("div", { class: "head" }, h("h1", {}, "Difficulty")), chips, body);
  const isEval = context.runs().find((run) => run.id === params.run)?.kind === "eval";
  const shown = () => ({ run: params.run, set: setOf(context) });

  // As many columns as fit, so that the last step is on the page.
  function columns() {
    const width = document.getElementById("main").clientWidth;
    const margins = matchMedia("(max-width: 760px)").matches ? 32 : 52;
    return Math.max(2, Math.min(24, Math.floor((width - margins - 182) / CELL_PX)));
  }
  async function draw(isPoll) {
    const { data, isNew } = await context.ask("difficulty", { ...shown(), bins: columns() });
    if (isPoll && !isNew) return;
    if (data.indexing) { put(body, progress(data.indexing)); setTimeout(() => { if (!context.signal.aborted) draw().catch(() => {}); }, 400); return; }
    put(chips, isEval && setChips(context, () => draw()));
    const run = context.runs().find((item) => item.id === params.run);
    put(body, data.levels.length ? [map(data, shown(), isEval), histogram(data), problems(data, params)]
      : run?.has_rollouts ? empty("Nothing graded", "No response of this run has a verdict.")
      : empty("This run keeps no responses", "There is nothing to grade. Runs of teach, rl, distill, tango and eval store what a model wrote."));
  }
  await draw();
  let last = columns();
  const onResize = () => { if (columns() !== last) { last = columns(); draw().catch(() => {}); } };
  addEventListener("resize", onResize, { signal: context.signal });
  context.poll(() => draw(true));
}

function map(data, shown, isEval) {
  const spans = isEval ? [] : data.spans;
  const heads = ["Level", ...spans.map(([low, high]) => ({ text: low === high ? String(low) : `${low}–${high}`, class: "num" })), { text: isEval ? "correct" : "all steps", class: "num pinned" }];
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  return [
    h("p", { class: "quiet" }, `Correct rollouts in percent, by level${isEval ? "" : " and step"}. A level is a band of the problems' difficulty, from 0, the easiest, to 1. A stronger colour is more.`),
    table(heads, data.levels.map((row) => h("tr", {},
      h("th", { scope: "row", class: "nowrap" }, row.level, row.level !== "unknown" && h("span", { class: "quiet small" }, ` ${band(row.level).join("–")}`)),
      spans.map((span, i) => cell(row.correct[i], row.count[i], row.level, { ...shown, step: span.join("..") })),
      cell(sum(row.correct), sum(row.count), row.level, shown, "pinned"))),
    { label: "Share of correct rollouts by level and step", class: isEval ? "map short" : "map" }),
  ];
}

function band(name) {
  return [(Number(name) - 1) / BANDS, Number(name) / BANDS].map((value) => number(value, 2));
}

function cell(correct, count, name, filters, place = "") {
  if (!count) return h("td", { class: `num quiet ${place}` }, "·");
  const share = correct / count;
  const range = name === "unknown" ? "" : `${((Number(name) - 1) / BANDS).toFixed(1)}..${Number(name) === BANDS ? 1 : (Number(name) / BANDS - 0.0001).toFixed(4)}`;
  return h("td", { class: `num heat ${place}`, vars: { "--share": share.toFixed(3) }, title: `${number(correct)} of ${number(count)} rollouts` },
    h("a", { href: address("rollouts", { ...filters, level: range }) }, (100 * share).toFixed(0)));
}

function histogram(data) {
  const most = Math.max(...data.histogram, 1);
  const names = data.histogram.map((_, i) => (i === 0 ? "0" : i === data.histogram.length - 1 ? "100" : `<${10 * i}`));
  return h("section", {}, h("h2", {}, "Problems by their share of correct rollouts, in percent"),
    h("div", { class: "bars", role: "img", "aria-label": data.histogram.map((count, i) => `${names[i]} percent: ${count}`).join(", ") },
      data.histogram.map((count, i) => h("div", { class: "bar" }, h("span", { class: "small quiet" }, count || "\u00a0"), h("span", { class: "fill", vars: { height: `${Math.round((72 * count) / most)}px` } }), h("span", { class: "tick quiet" }, names[i])))));
}

function problems(data, params) {
  const halves = data.halves.length > 1 ? data.halves.map(([low, high]) => ({ text: `Steps ${low}–${high}`, class: "num" })) : [];
  return h("section", {}, h("h2", {}, "Hardest problems"), table(["Problem", { text: "Level", class: "num middle" }, { text: "Rollouts", class: "num middle" }, { text: "Correct", class: "num" }, ...halves],
    data.problems.slice(0, 100).map((row) => h("tr", {}, h("td", { class: "break" }, h("a", { href: address("problem", { run: params.run, problem: row.problem }), "data-item": row.problem }, row.question ? line(row.question) : row.problem)),
      h("td", { class: "num middle" }, level(row.level)), h("td", { class: "num middle" }, number(row.count)), h("td", { class: "num" }, percent(row.correct)),
      halves.length > 0 && [row.early, row.late].map((share) => h("td", { class: "num" }, percent(share))))), { label: "Hardest problems" }));
}
