import { address, copyButton, field, h, length, level, link, number, put, select, verdict } from "../dom.js";
import { loadMath, raw, rendered } from "../text.js";
import { ENDS, EVAL_SETS, filtersOf, isEvalRun } from "./rollouts.js";
import { facts_list } from "./run.js";
import { siblings } from "./siblings.js";
import { COLOURS, tokens, wordsOf } from "./tokens.js";

export async function render(main, context) {
  const { params } = context;
  await loadMath();
  const isEval = isEvalRun(context);
  const set = isEval ? EVAL_SETS[Number(/-(\d+)\.parquet$/.exec(params.file)?.[1] ?? 0)] : params.set;  // its own list
  const { data } = await context.ask("rollout", { run: params.run, ...filtersOf(context), set, sort: params.sort, file: params.file, row: params.row });
  const body = h("div", {});
  const known = [...COLOURS, ...Object.keys(data.columns).filter((name) => !COLOURS.some(([key]) => key === name)).map((name) => [name, wordsOf(name)])];
  const options = known.map(([key, words]) => [key, key && !(key in data.columns) ? `${words} (unavailable)` : words]);
  const views = [...(data.pieces ? [["", "tokens"]] : []), [data.pieces ? "rendered" : "", "rendered"], ["raw", "raw"]];
  const viewOf = () => views.find(([key]) => key === (params.view ?? "")) ?? views[0];

  function draw() { put(body, page(data, params, viewOf()[1], () => change({ whole: "1" }))); }

  function change(changes) { context.set(changes); draw(); }

  const picker = select("colour", params.colour, options, (value) => change({ colour: value }));
  for (const option of picker.options) {
    if (option.value && !(option.value in data.columns)) { option.disabled = true; option.title = data.absent[option.value] ?? "not stored"; }
  }
  const view = select("view", viewOf()[0], views, (value) => change({ view: value }));
  const place = data.neighbours;
  const to = (target) => ({ ...params, whole: "", file: target.file, row: target.row });
  const step = (target, words, key) => (target ? h("a", { href: address("rollout", to(target)), title: `key ${key}` }, words) : h("span", { class: "quiet" }, words));
  const list = Object.fromEntries(Object.entries({ ...params, set }).filter(([name]) => !["file", "row", "view", "colour", "whole"].includes(name)));
  put(main,
    h("div", { class: "head tight" }, h("h1", {}, "Rollout"),
      h("nav", { class: "actions steps", "aria-label": "Rollouts of the list" }, step(place.previous, "← previous", "k"),
        link("rollouts", list, place.number === null ? `outside the ${number(place.total)} of the list` : `${number(place.number)} of ${number(place.total)}`), step(place.next, "next →", "j")),
      h("div", { class: "actions" }, step(place.before, "← group", "["), step(place.after, "group →", "]"),
        link("rollouts", { run: params.run, group: data.group, step: data.step, set }, "This group"), link("problem", { run: params.run, problem: problemId(data) }, "This problem over training"))),
    facts(data, isEval),
    h("div", { class: "filters always" }, field("Text", view), data.pieces && field("Colour tokens by", picker), reasons(data)), body);
  draw();
  for (const [key, target] of [["[", place.before], ["]", place.after], ["k", place.previous], ["j", place.next]]) {
    context.keys[key] = () => { if (target) location.hash = address("rollout", to(target)); };
  }
  context.keys.e = () => change({ whole: params.whole ? "" : "1" });
  context.keys.v = () => { const at = views.indexOf(viewOf()); view.value = views[(at + 1) % views.length][0]; change({ view: view.value }); };
  context.keys.c = () => {
    const free = known.map(([key]) => key).filter((key) => !key || key in data.columns);
    picker.value = free[(free.indexOf(params.colour ?? "") + 1) % free.length];
    change({ colour: picker.value });
  };
}

function problemId(data) { return typeof data.problem === "object" ? data.problem.id : data.problem; }

// What a reader wants to know before reading, on one line.
function facts(data, isEval) {
  const size = data.siblings.length + 1;
  const parts = [
    isEval ? EVAL_SETS[data.step] : data.step > 0 && `step ${data.step}`,
    size > 1 && `sample ${data.sample} of ${size}`,
    data.reward !== null && `reward ${number(data.reward, 3)}`,
    data.advantage !== null && `advantage ${number(data.advantage, 3).replace("-", "−")}`,
    data.finish && (ENDS[data.finish] ?? data.finish),
    data.task,
  ].filter(Boolean);
  return h("p", { class: "facts-line" }, verdict(data.verdict), parts.map((words) => h("span", {}, words)),
    h("span", { class: "break" }, h("span", { class: "mono" }, problemId(data)), " ", copyButton(() => problemId(data), "the problem's id")));
}

// Why measures are missing, in words, for those who do not see the tooltip of a greyed option.
function reasons(data) {
  const rows = Object.entries(data.absent);
  if (!rows.length) return null;
  const byReason = new Map();
  for (const [name, why] of rows) byReason.set(why, [...(byReason.get(why) ?? []), wordsOf(name)]);
  return h("details", { class: "small quiet" }, h("summary", {}, `${rows.length} measure${rows.length === 1 ? "" : "s"} unavailable`),
    h("ul", {}, [...byReason].map(([why, names]) => h("li", { class: "break" }, h("strong", {}, names.join(", ")), `: ${why}`))));
}

function page(data, params, view, onWhole) {
  const unit = data.fields ? "word" : "token";  // other systems' files have no tokens
  const prompt = data.prompt ?? [{ role: "input", content: data.question ?? "" }];
  return [
    h("div", { class: "columns" },
      h("div", { class: "span2" },
        h("section", {}, h("h2", {}, "Question"), prompt.map((message) => [prompt.length > 1 && h("p", { class: "quiet small" }, message.role), view === "raw" ? raw(message.content) : rendered(message.content)]),
          data.prompt_text && h("details", { class: "small quiet" }, h("summary", {}, `What the model was given, ${number(data.num_prompt_tokens)} tokens`), raw(data.prompt_text))),
        h("section", {}, h("h2", {}, "Response ", h("span", { class: "quiet small" }, length(data.length, unit), " "), copyButton(() => data.text, "the response")), response(data, params, view, onWhole))),
      h("section", {}, h("h2", {}, "Score"), score(data))),
    data.siblings.length > 0 && siblings(data, params, unit, view),
    data.fields && h("details", { class: "fields" }, h("summary", {}, `All ${Object.keys(data.fields).length} fields of the file`), facts_list(Object.entries(data.fields).map(([name, value]) => [name, h("span", { class: "mono break lines" }, value)]))),
  ];
}

function response(data, params, view, onWhole) {
  const text = view === "raw" ? raw(data.text) : view === "rendered" ? rendered(data.text) : tokens(data, params.colour);
  const box = h("article", { class: params.whole ? "response main whole" : "response main" }, text);
  if (params.whole) return box;
  // Only a response that is cut here has the button.
  const button = h("button", { type: "button", hidden: true, title: "key e", onclick: onWhole }, "Show all of it");
  const watcher = new ResizeObserver(() => {
    const inner = box.querySelector(".text");
    const isCut = inner.scrollHeight > inner.clientHeight + 4;
    button.hidden = !isCut;
    inner.classList.toggle("cut", isCut);
  });
  watcher.observe(box);
  return [box, button];
}

function score(data) {
  const explained = new Set(data.terms.map((term) => term.name));
  const parts = Object.entries(data.score?.parts ?? data.parts ?? {}).filter(([name]) => !explained.has(name));
  return [
    facts_list([
      ["Verdict", verdict(data.verdict)],
      ["Answer read", data.score?.answer ?? data.answer ?? "–"],
      ["Right answer", data.gold ?? "–"],
      ["Grader's reason", data.score?.note || data.note || "–"],
      ["Reward", number(data.reward)],
      data.level !== null && ["Level", level(data.level)],
    ].filter(Boolean)),
    data.terms.length > 0 && [h("h3", {}, "Reward breakdown"),
      h("table", { class: "tight" }, h("thead", {}, h("tr", {}, ["Term", "Value", "Weight", "Adds"].map((head, i) => h("th", { scope: "col", class: i ? "num" : "" }, head)))),
        h("tbody", {}, data.terms.map((term) => h("tr", {}, h("td", {}, term.name), h("td", { class: "num" }, number(term.value, 3)), h("td", { class: "num" }, number(term.weight, 3)), h("td", { class: "num" }, number(term.product, 3)))),
          h("tr", { class: "sum" }, h("td", {}, "reward"), h("td", {}), h("td", {}), h("td", { class: "num" }, number(data.reward, 4)))))],
    parts.length > 0 && [h("h3", {}, explained.size ? "Other parts of the score" : "Parts of the score"), facts_list(parts.map(([name, value]) => [name, number(value, 4)]))],
  ];
}
