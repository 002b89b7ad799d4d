import { COLOURS, colour } from "../charts.js";
import { address, empty, h, level, link, number, percent, put, verdict } from "../dom.js";
import { loadMath, rendered } from "../text.js";
import { EVAL_SETS } from "./rollouts.js";

export async function render(main, context) {
  const { params } = context;
  if (!params.problem) return put(main, empty("No problem chosen", link("difficulty", { run: params.run }, "Choose one.")));
  await loadMath();
  const { data } = await context.ask("problem", { run: params.run, problem: params.problem });
  const isEval = context.runs().find((run) => run.id === params.run)?.kind === "eval";
  const spanName = ([low, high]) => (isEval ? EVAL_SETS[low] ?? String(low) : low === high ? String(low) : `${low}–${high}`);
  // The first colour is that of right answers alone.
  const wrong = data.answers.filter((line) => !line.correct && line.answer !== null);
  const tint = new Map(data.answers.map((line) => [line, line.correct ? "var(--accent)" : line.answer === null ? "var(--rule)" : colour(1 + wrong.indexOf(line) % (COLOURS - 1))]));
  put(main, h("div", { class: "head" }, h("h1", {}, "Problem"), h("div", { class: "actions" }, link("rollouts", { run: params.run, problem: params.problem }, `All ${data.count} rollouts`))),
    h("div", { class: "columns" }, h("section", { class: "span2" }, rendered(data.question ?? "")),
      h("section", {}, h("p", {}, "Right answer ", h("strong", {}, data.gold ?? "unknown")), h("p", { class: "quiet small" }, `${data.task} · level ${level(data.level)} · ${data.problem}`))),
    h("section", {}, h("h2", {}, isEval ? "Answers" : "Answers over training"), h("p", { class: "quiet small" }, isEval ? "Below each column, the share of answers that is right." : "A column for each step in which it was asked; below it, the step and the share that is right."),
      h("ul", { class: "legend" }, data.answers.map((line) => h("li", {}, h("span", { class: "swatch", vars: { background: tint.get(line) } }), line.answer === null ? line.name : h("a", { href: address("rollouts", { run: params.run, problem: params.problem, answer: line.answer }) }, line.answer || "(empty)"), line.correct && h("span", { class: "quiet small" }, " correct"), h("span", { class: "quiet small" }, ` ${line.counts.reduce((a, b) => a + b, 0)}`)))),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers over training" }, h("div", { class: "distribution" }, data.spans.map(([low, high], i) => {
        const total = data.answers.reduce((sum, line) => sum + line.counts[i], 0) || 1;
        return h("div", { class: "span" }, h("div", { class: "tower", role: "img", "aria-label": `${isEval ? spanName([low, high]) : `Steps ${low} to ${high}`}: ${data.answers.filter((line) => line.counts[i]).map((line) => `${line.answer ?? line.name} ${line.counts[i]}`).join(", ")}` },
          data.answers.filter((line) => line.counts[i]).map((line) => h("span", { vars: { height: `${(100 * line.counts[i]) / total}%`, background: tint.get(line) }, title: `${line.answer ?? line.name}: ${line.counts[i]}` }))),
          h("span", { class: "small quiet" }, spanName([low, high])), h("span", { class: "small" }, percent(data.pass[i]).replace(".0", "")));
      })))),
    h("section", {}, h("h2", {}, "Latest rollouts"), h("div", { class: "group" }, data.rows.slice(0, 40).map((item) => h("a", { class: "rollout line", "data-item": `${item.file}:${item.row}`, href: address("rollout", { run: params.run, problem: params.problem, file: item.file, row: item.row }) },
      verdict(item.verdict), h("span", { class: "answer" }, item.answer ?? "–"), h("span", { class: "tail" }, item.snippet === item.answer ? "" : item.snippet),
      h("span", { class: "num quiet" }, item.reward === null ? "" : `reward ${number(item.reward, 3)}`), h("span", { class: "num quiet" }, isEval ? item.set : `step ${item.step}`))))));
}
