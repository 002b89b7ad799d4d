import { address, empty, field, h, number, percent, put, select, table, verdict } from "../dom.js";
import { progress } from "./rollouts.js";

export async function render(main, context) {
  const { params } = context;
  if (!params.run) return put(main, empty("No rollouts yet", "Verdicts are compared of graded rollouts."));
  async function draw() {
    const { data } = await context.ask("agreement", { run: params.run, part: params.part });
    put(main, page(data, context, draw));
    if (data.indexing) setTimeout(() => { if (!context.signal.aborted) draw().catch(() => {}); }, 400);
  }
  await draw();
}

function page(data, context, draw) {
  const { params } = context;
  const head = (part) => h("div", { class: "head" }, h("h1", {}, "Grader and judge"),
    data.parts.length > 0 && field("Against", select("part", part, data.parts.map((name) => [name, name === "asked" ? "whether a judge was asked" : name]), (value) => { context.set({ part: value }, true); draw(); })));
  if (data.indexing) return [head(params.part), progress(data.indexing)];
  const run = context.runs().find((item) => item.id === params.run);
  if (!data.table && !run?.has_rollouts) return [head(), empty("This run keeps no responses", "There is nothing to grade. Runs of teach, rl, distill, tango and eval store what a model wrote.")];
  if (!data.table) return [head(), empty("Nothing to compare", "The scores of this run have no parts. The task judge and rewards with several parts have some.")];
  const { part, values, cells, halves } = data.table;
  const total = cells.reduce((sum, cell) => sum + cell.count, 0);
  const names = values.map((value) => name(part, value, halves));
  const verdicts = [...new Set(cells.map((cell) => cell.verdict))];
  const columns = cells.some((cell) => cell.value === null) ? [...values, null] : values;
  return [
    head(part),
    h("p", { class: "quiet" }, part === "asked"
      ? "The rule decides where an answer reads as the reference. Otherwise a judge is asked: a correct verdict there is one that the rule alone would have missed."
      : `Verdicts against “${part}”, a part of the score. Where the two should say the same, every cell off the diagonal is worth reading.`),
    table(["Verdict", ...names.map((text) => ({ text, class: "num" })), ...(columns.includes(null) ? [{ text: "no such part", class: "num" }] : []), { text: "all", class: "num" }],
      verdicts.map((key) => h("tr", {}, h("th", { scope: "row" }, verdict(key)), columns.map((value) => {
        const cell = cells.find((item) => item.verdict === key && item.value === value);
        if (!cell) return h("td", { class: "num quiet" }, "·");
        const isLink = value !== null && halves === null;
        const words = `${number(cell.count)} (${percent(cell.count / total)})`;
        return h("td", { class: "num" }, isLink ? h("a", { "data-item": `${key}:${value}`, href: address("rollouts", { run: params.run, verdict: key, part: `${part}:${value}` }) }, words) : words);
      }), h("td", { class: "num" }, number(cells.filter((item) => item.verdict === key).reduce((sum, item) => sum + item.count, 0))))), { label: "Verdicts against a part of the score" }),
    h("section", {}, h("h2", {}, "Reasons"), cells.filter((cell) => cell.notes.length).map((cell) => h("details", { open: cells.length < 3 },
      h("summary", {}, verdict(cell.verdict), ` · ${name(part, cell.value, halves)} · ${number(cell.count)}`),
      h("ul", {}, cell.notes.slice(0, 12).map(([note, count]) => h("li", {}, `${note || "no reason"} `, h("span", { class: "quiet" }, number(count)))))))),
  ];
}

function name(part, value, halves) {
  if (value === null) return "no such part";
  if (halves !== null) return value === "low" ? `${part} ≤ ${number(halves, 3)}` : `${part} > ${number(halves, 3)}`;
  if (part === "asked") return value ? "judge asked" : "rule decided";
  return `${part} = ${number(value)}`;
}
