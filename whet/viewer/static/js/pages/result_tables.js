// Leaderboards, comparisons, studies and summaries as tables. Each throws at a file that is shaped
// otherwise, which the page of results then shows as it is.

import { duration, estimate, h, isEstimate, link, number, percent, table, words } from "../dom.js";
import { facts_list } from "./run.js";

const CLEAR = 0.05;  // below this p-value the data can tell, as in evals/comparison.py
const num = (text) => ({ text, class: "num" });

export const KINDS = { leaderboard, compare: comparison, comparison, study, pipeline };

// The estimate with a line below it, from 0 to the most that the table has.
export function interval(value, most = 1) {
  if (!isEstimate(value)) return "–";
  const at = (share) => `${Math.min(100, (100 * share) / most)}%`;
  return h("span", { class: "interval" }, estimate(value), h("span", { class: "range-line", "aria-hidden": "true" },
    h("span", { class: "range-fill", vars: { left: at(value.low), width: at(value.high - value.low) } }), h("span", { class: "range-dot", vars: { left: at(value.mean) } })));
}

function leaderboard(board) {
  const at = (model, benchmark) => board.results.find((item) => item.model === model && item.benchmark === benchmark);
  const most = highest([...board.results.map((item) => item.score), ...Object.values(board.means)]);
  const isPair = board.models.length === 2;
  return [
    head(`${board.suite}, ${board.form}`, board.about),
    board.warnings.map((text) => h("p", { class: "care" }, text)),
    table(["Benchmark", { text: "Metric", class: "middle" }, { text: "Problems", class: "num middle" }, ...board.models.map(num)], [
      ...board.benchmarks.map((name) => h("tr", {}, h("th", { scope: "row" }, name, h("div", { class: "narrow quiet small" }, at(board.models[0], name).metric)), h("td", { class: "quiet middle" }, at(board.models[0], name).metric), h("td", { class: "num middle" }, number(at(board.models[0], name).score.count)),
        board.models.map((model) => h("td", { class: "num" }, interval(at(model, name).score, most))))),
      h("tr", { class: "sum" }, h("td", {}, "Mean"), h("td", { class: "middle" }), h("td", { class: "middle" }), board.models.map((model) => h("td", { class: "num" }, interval(board.means[model], most)))),
    ], { label: "Scores" }),
    board.differences.length > 0 && section(`Differences from ${board.models[0]}`, table(["Benchmark", ...(isPair ? [] : ["Model"]), num("Difference"), "Verdict", num("p"), num("Detectable")],
      board.differences.map((row) => h("tr", {}, h("th", { scope: "row" }, row.benchmark), !isPair && h("td", {}, row.after), compared(row.comparison, row.comparison.p_value))), { label: "Differences" })),
    section("Answers", table(["Benchmark", "Model", num("Answers"), num("Tokens"), num("Cut off"), num("No answer")], board.results.map((item) => h("tr", {}, h("th", { scope: "row" }, item.benchmark), h("td", {}, item.model),
      h("td", { class: "num" }, number(item.num_answers)), h("td", { class: "num" }, number(item.tokens.mean, 3)), h("td", { class: "num" }, percent(item.unfinished.mean)), h("td", { class: "num" }, percent(item.no_answer.mean)))), { label: "Answers" })),
    board.benchmarks.map((name) => byLevel(board, name, at)),
    section("Models", facts_list(board.models.map((model) => [model, board.locations?.[model] ?? "–"]))),
  ];
}

function byLevel(board, name, at) {
  const groups = Object.keys(at(board.models[0], name).by_level).filter((level) => level !== "unknown").sort();
  if (groups.length < 2) return null;
  return h("details", {}, h("summary", {}, `${name} by level`), table(["Level", ...board.models.map(num)], groups.map((level) => h("tr", {}, h("th", { scope: "row" }, level),
    board.models.map((model) => h("td", { class: "num" }, interval(at(model, name).by_level[level]))))), { label: `${name} by level` }));
}

function comparison(page) {
  const most = highest(page.scores.flatMap((row) => row.scores.map((score) => score?.estimate)));
  return [
    head(page.headline, page.detail),
    section("What differs", table(["Setting", ...page.arms.map((arm) => arm.name)], [
      ...page.settings.map((row) => h("tr", {}, h("th", { scope: "row" }, row.key, h("div", { class: "quiet small" }, words(row.meaning))), row.values.map((value) => h("td", { class: "break" }, String(value).replace(/^"(.*)"$/, "$1"))))),
      h("tr", {}, h("th", { scope: "row" }, "seeds"), page.arms.map((arm) => h("td", {}, arm.seeds.join(", ")))),
    ], { label: "Settings that differ" }), page.notes.map((note) => h("p", { class: "quiet small" }, note))),
    page.scores.length > 0 && section("Scores", table(["Figure", "Arm", num("Score"), num("Seeds"), num("Difference"), "Verdict", num("p"), num("Detectable")], page.scores.flatMap((row) =>
      row.scores.map((score, i) => score && h("tr", {}, h("th", { scope: "row" }, i === 0 && `${row.stage} ${row.figure}`), h("td", {}, page.arms[i].name), h("td", { class: "num" }, interval(score.estimate, most)),
        h("td", { class: "num" }, score.by_seed.map((mean) => (100 * mean).toFixed(1)).join(", ")), compared(score.comparison, score.comparison?.p_value)))), { label: "Scores" })),
    section("Runs", facts_list(page.arms.map((arm) => [arm.name, arm.folders.join(", ")]))),
  ];
}

function study(result) {
  const chosen = Object.entries(result.chosen).map(([factor, level]) => `${factor} = ${level}`).join(", ");
  const isDone = (run) => run.state === "done";
  return [
    head(result.study, `Seeds ${result.seeds.join(", ")} · chosen: ${chosen} · ${result.runs.filter(isDone).length} of ${result.runs.length} runs done · ${duration(3600 * result.hours)} of stages`),
    result.stopped && h("p", { class: "care" }, result.stopped),
    result.rounds.map((round, i) => {
      const most = highest(round.levels.map((level) => level.estimate));
      const differences = new Map(round.differences.map((row) => [row.name, row]));
      return section(`${i + 1} · ${round.factors.join(", ")}`, h("p", { class: "lead" }, round.sentence),
        table(["Level", num(round.metric), num("Seeds"), num("Difference"), "Verdict", num("p"), num("Detectable")], round.levels.map((level) => h("tr", {}, h("th", { scope: "row" }, level.name),
          h("td", { class: "num" }, interval(level.estimate, most)), h("td", { class: "num" }, Object.values(level.seeds).map((mean) => (100 * mean).toFixed(1)).join(", ")),
          compared(differences.get(level.name)?.comparison, differences.get(level.name)?.p_value))), { label: `Round ${i + 1}` }),
        [...new Set(Object.values(round.failed))].map((text) => h("p", { class: "small quiet break" }, h("span", { class: "warning" }, `${Object.keys(round.failed).filter((name) => round.failed[name] === text).join(", ")} failed: `), text)));
    }),
    section("Runs", table(["Run", "State", num("Time")], result.runs.map((run) => h("tr", {}, h("td", {}, run.name), h("td", {}, run.state), h("td", { class: "num" }, duration(run.seconds)))), { label: "Runs" })),
  ];
}

function pipeline(summary, file) {
  const names = [...new Set(summary.stages.flatMap((stage) => Object.keys(stage).filter((key) => isEstimate(stage[key]))))];
  const most = highest(summary.stages.flatMap((stage) => names.map((name) => stage[name])));
  const seconds = Object.entries(summary.seconds);
  return [
    head(file.split("/").at(-2) ?? "This pipeline", `Seed ${summary.seed} · ${duration(seconds.reduce((sum, [, value]) => sum + value, 0))}`),
    summary.stages.length > 0 && section("Evaluations", table(["Model", ...names.map(num), num("Problems"), num("Answers each")], summary.stages.map((stage) => h("tr", {}, h("th", { scope: "row", class: "break" }, stage.name),
      names.map((name) => h("td", { class: "num" }, interval(stage[name], most))), h("td", { class: "num" }, number(stage.problems)), h("td", { class: "num" }, number(stage.samples)))), { label: "Evaluations" })),
    section("Time of the stages", facts_list(seconds.map(([name, value]) => [name, duration(value)]))),
    h("p", {}, link("runs", { q: file.replace(/\/?summary\.json$/, "") }, "Runs of this pipeline")),
  ];
}

// Cells of a difference: in points, what the data can tell, p, and what as much data would find.
function compared(row, chance) {
  if (!row) return [h("td", {}), h("td", {}), h("td", {}), h("td", {})];
  const { mean, low, high } = row.difference;
  const points = (value) => (100 * value).toFixed(1).replace(/^-(?=0\.0$)/, "").replace("-", "−");
  const word = chance >= CLEAR ? "no clear difference" : mean > 0 ? "better" : "worse";
  const tone = { "no clear difference": "quiet", better: "good", worse: "warning" }[word];
  return [
    h("td", { class: "num" }, `${mean > 0 ? "+" : ""}${points(mean)} points `, h("span", { class: "quiet" }, `[${points(low)}, ${points(high)}]`)),
    h("td", { class: `nowrap ${tone}` }, word),
    h("td", { class: "num" }, chance < 0.001 ? "< 0.001" : chance.toFixed(3)),
    h("td", { class: "num" }, row.minimum_detectable < 1 ? `${(100 * row.minimum_detectable).toFixed(1)} points` : "none"),
  ];
}

function head(title, text) {
  return [h("h2", { class: "title" }, title), text && h("p", { class: "quiet" }, text)];
}

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

function highest(estimates) {
  return Math.min(1, Math.max(0.05, ...estimates.filter(isEstimate).map((item) => item.high)));
}
