import { address, empty, h, number, percent, put, table } from "../dom.js";
import { line, loadMath } from "../text.js";
import { progress } from "./rollouts.js";

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No rollouts yet", "The map is drawn of graded rollouts."));
  await loadMath();
  const body = h("div", {});
  put(main, h("div", { class: "head" }, h("h1", {}, "Difficulty")), h("p", { class: "quiet" }, "Correct rollouts in percent, by level, from 1, the easiest, to 5, over the steps of training. Darker is more."), body);
  async function draw(isPoll) {
    const { data, isNew } = await context.ask("difficulty", { run: params.run, set: params.set });
    if (isPoll && !isNew) return;
    if (data.indexing) { put(body, progress(data.indexing)); setTimeout(() => { if (!context.signal.aborted) draw().catch(() => {}); }, 400); return; }
    put(body, data.levels.length ? [map(data, params), histogram(data), problems(data, params)] : empty("Nothing graded yet", "No rollout of this run has a verdict."));
  }
  await draw();
  context.poll(() => draw(true));
}

function map(data, params) {
  const heads = ["Level", ...data.spans.map(([low, high]) => ({ text: low === high ? String(low) : `${low}–${high}`, class: "num" })), { text: "all", class: "num" }];
  return table(heads, data.levels.map((line) => {
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    return h("tr", {}, h("th", { scope: "row" }, line.level), line.count.map((count, i) => cell(line.correct[i], count, i, line.level, data, params)),
      h("td", { class: "num" }, percent(sum(line.correct) / sum(line.count))));
  }), { label: "Share of correct rollouts by level and step", class: "map" });
}

function cell(correct, count, i, level, data, params) {
  if (!count) return h("td", { class: "num quiet" }, "·");
  const share = correct / count;
  const [low, high] = data.spans[i];
  const band = level === "unknown" ? "" : `${((Number(level) - 1) / 5).toFixed(1)}..${level === "5" ? 1 : (Number(level) / 5 - 0.0001).toFixed(4)}`;
  return h("td", { class: `num heat ${share > 0.55 ? "strong" : ""}`, vars: { "--strength": `${Math.round(85 * share)}%` }, title: `${count} rollouts` },
    h("a", { href: address("rollouts", { run: params.run, step: `${low}..${high}`, level: band }) }, (100 * share).toFixed(0)));
}

function histogram(data) {
  const most = Math.max(...data.histogram, 1);
  return h("section", {}, h("h2", {}, "Problems by their share of correct rollouts"),
    h("div", { class: "bars", role: "img", "aria-label": `Numbers of problems, from never solved to always: ${data.histogram.join(", ")}` },
      data.histogram.map((count, i) => h("div", { class: "bar" }, h("span", { class: "small quiet" }, count || ""), h("span", { class: "fill", vars: { height: `${Math.round((72 * count) / most)}px` } }), h("span", { class: "small quiet" }, i === 0 ? "0 %" : i === data.histogram.length - 1 ? "100 %" : "")))));
}

function problems(data, params) {
  return h("section", {}, h("h2", {}, "Hardest problems"), table(["Problem", { text: "Level", class: "num" }, { text: "Rollouts", class: "num" }, { text: "Correct", class: "num" }, { text: "First half", class: "num" }, { text: "Second half", class: "num" }],
    data.problems.slice(0, 100).map((row) => h("tr", {}, h("td", { class: "break" }, h("a", { href: address("problem", { run: params.run, problem: row.problem }), "data-item": row.problem }, row.question ? line(row.question) : row.problem)),
      h("td", { class: "num" }, row.level === null ? "–" : row.level.toFixed(2)), h("td", { class: "num" }, number(row.count)), h("td", { class: "num" }, percent(row.correct)), h("td", { class: "num" }, percent(row.early)), h("td", { class: "num" }, percent(row.late)))), { label: "Hardest problems" }));
}
