import { address, count, field, h, link, number, put, select, verdict } from "../dom.js";
import { loadMath, raw, rendered } from "../text.js";
import { facts_list } from "./run.js";

const COLOURS = [["", "nothing"], ["advantage", "advantage"], ["logprob", "log-probability"], ["ratio", "ratio"], ["entropy", "entropy"], ["mask", "mask"], ["engine_gap", "engine–learner gap"], ["step_credit", "step credit"]];

const SIGNED = ["advantage", "step_credit", "engine_gap", "ratio"];

export async function render(main, context) {
  const { params } = context;
  await loadMath();
  const { data } = await context.ask("rollout", { run: params.run, file: params.file, row: params.row });
  const body = h("div", {});
  const known = [...COLOURS, ...Object.keys(data.columns).filter((name) => !COLOURS.some(([key]) => key === name)).map((name) => [name, name])];
  const options = known.map(([key, words]) => [key, key && !(key in data.columns) ? `${words} (not there)` : words]);

  function draw() { put(body, page(data, params)); }

  function change(changes) { context.set(changes); draw(); }

  const picker = select("colour", params.colour, options, (value) => change({ colour: value }));
  for (const option of picker.options) {
    if (option.value && !(option.value in data.columns)) { option.disabled = true; option.title = data.absent[option.value] ?? "not stored"; }
  }
  const view = select("view", params.view, [["", "tokens"], ["rendered", "rendered"], ["raw", "raw"]], (value) => change({ view: value }));
  const step = (place) => place && link("rollout", { ...params, file: place.file, row: place.row }, place === data.neighbours.before ? "← group before" : "group after →");
  put(main, h("div", { class: "head" }, h("h1", {}, "Rollout"), field("Text", view), field("Colour tokens by", picker),
    h("div", { class: "actions" }, step(data.neighbours.before), step(data.neighbours.after),
      link("rollouts", { run: params.run, group: data.group, step: data.step }, "This group"), link("problem", { run: params.run, problem: problemId(data) }, "This problem over training"))),
    reasons(data), body);
  draw();
  const places = [["[", data.neighbours.before], ["]", data.neighbours.after]];
  for (const [key, place] of places) context.keys[key] = () => { if (place) location.hash = address("rollout", { ...params, file: place.file, row: place.row }); };
  context.keys.v = () => { const order = ["", "rendered", "raw"]; view.value = order[(order.indexOf(params.view ?? "") + 1) % 3]; change({ view: view.value }); };
  context.keys.c = () => {
    const free = known.map(([key]) => key).filter((key) => !key || key in data.columns);
    picker.value = free[(free.indexOf(params.colour ?? "") + 1) % free.length];
    change({ colour: picker.value });
  };
}

function problemId(data) { return typeof data.problem === "object" ? data.problem.id : data.problem; }

// Why quantities are missing, in words, for those who do not see the tooltip of a greyed option.
function reasons(data) {
  const rows = Object.entries(data.absent);
  if (!rows.length) return null;
  const byReason = new Map();
  for (const [name, why] of rows) byReason.set(why, [...(byReason.get(why) ?? []), name.replace("_", " ")]);
  return h("details", { class: "small quiet" }, h("summary", {}, `${rows.length} ${rows.length === 1 ? "quantity is" : "quantities are"} not there for these tokens`),
    h("ul", {}, [...byReason].map(([why, names]) => h("li", {}, h("strong", {}, names.join(", ")), `: ${why}`))));
}

function page(data, params) {
  const unit = data.fields ? "word" : "token";  // other systems' files have no tokens
  const prompt = data.prompt ?? [{ role: "input", content: data.question ?? "" }];
  return [
    h("div", { class: "columns" },
      h("div", { class: "span2" },
        h("section", {}, h("h2", {}, "Question"), prompt.map((message) => [prompt.length > 1 && h("p", { class: "quiet small" }, message.role), params.view === "raw" ? raw(message.content) : rendered(message.content)]),
          data.prompt_text && h("details", { class: "small quiet" }, h("summary", {}, `What the model was given, ${number(data.num_prompt_tokens)} tokens`), raw(data.prompt_text))),
        h("section", {}, h("h2", {}, "Response"), response(data, params, true, unit))),
      h("section", {}, h("h2", {}, "Score"), score(data))),
    data.siblings.length > 0 && h("section", {}, h("h2", {}, `Siblings, ${data.siblings.length}`),
      h("div", { class: "siblings", tabindex: "0", role: "region", "aria-label": "Other responses of the group" }, data.siblings.map((sibling) => response(sibling, params, false, unit)))),
    data.fields && h("section", {}, h("h2", {}, "All fields"), facts_list(Object.entries(data.fields).map(([k, v]) => [k, h("span", { class: "mono break" }, v)]))),
  ];
}

function score(data) {
  const parts = Object.entries(data.score?.parts ?? data.parts ?? {});
  return [
    facts_list([
      ["Verdict", verdict(data.verdict)],
      ["Reward", number(data.reward)],
      ["Answer read", data.score?.answer ?? data.answer ?? "–"],
      ["Right answer", data.gold ?? "–"],
      ["Grader's reason", data.score?.note || data.note || "–"],
      ["Level", data.level === null ? "unknown" : number(data.level, 2)],
    ]),
    data.terms.length > 0 && [h("h3", {}, "How the reward comes about"),
      h("table", { class: "tight" }, h("thead", {}, h("tr", {}, ["Term", "Value", "Weight", "Adds"].map((head, i) => h("th", { scope: "col", class: i ? "num" : "" }, head)))),
        h("tbody", {}, data.terms.map((term) => h("tr", {}, h("td", {}, term.name), h("td", { class: "num" }, number(term.value, 3)), h("td", { class: "num" }, number(term.weight, 3)), h("td", { class: "num" }, number(term.product, 3)))),
          h("tr", { class: "sum" }, h("td", {}, "reward"), h("td", {}), h("td", {}), h("td", { class: "num" }, number(data.reward, 4)))))],
    parts.length > 0 && [h("h3", {}, "Parts of the score"), facts_list(parts.map(([name, value]) => [name, number(value, 4)]))],
  ];
}

function response(item, params, isMain, unit) {
  const head = h("p", { class: "meta" }, verdict(item.verdict), item.reward !== null && h("span", {}, `reward ${number(item.reward, 3)}`), h("span", {}, count(item.length, unit)), item.finish === "length" && h("span", {}, "cut"));
  let body;
  if (params.view === "raw") body = raw(item.text);
  else if (params.view === "rendered" || !isMain || !item.pieces) body = isMain && params.view !== "rendered" ? raw(item.text) : rendered(item.text);
  else body = tokens(item, params.colour);
  return h("article", { class: isMain ? "response main" : "response" },
    isMain ? head : h("a", { class: "plain", href: address("rollout", { run: params.run, file: item.file, row: item.row, view: params.view, colour: params.colour }), "data-item": `${item.file}:${item.row}` }, head),
    body, !isMain && item.note && h("p", { class: "small quiet note" }, item.note));
}

function tokens(item, name) {
  const values = item.columns[name];
  const known = (values ?? []).filter((value) => value !== null);
  const centre = name === "ratio" ? 1 : 0;
  const isSigned = known.some((value) => value > 0) && known.some((value) => value < 0) || SIGNED.includes(name);
  const top = Math.max(...known.map((value) => Math.abs(value - centre)), 1e-9);
  const isFlat = isSigned && top < 1e-7 && name !== "engine_gap";
  const low = Math.min(...known, 0);
  const high = Math.max(...known, 0);
  const box = h("pre", { class: "text tokens", tabindex: "0", "aria-label": "Tokens of the response" }, item.pieces.map((piece, i) => {
    const value = values?.[i];
    const span = h("span", { class: "token" }, piece);
    if (value !== null && value !== undefined) {
      const share = isFlat ? 0 : isSigned ? Math.abs(value - centre) / top : (value - low) / (high - low || 1);
      const tint = isSigned && value < centre ? "negative" : "positive";
      // A low log-probability is what one looks for: the scale is turned round.
      const strength = name === "logprob" ? 1 - share : share;
      span.classList.add(tint);
      span.style.setProperty("--strength", `${Math.round(70 * strength)}%`);
      span.title = `${name.replace("_", " ")} ${number(value, 4)}`;
    }
    return span;
  }));
  return [values && (isFlat ? h("p", { class: "scale small quiet" }, `${name.replace("_", " ")} is ${centre} at every token`) : scale(name, isSigned ? centre - top : low, isSigned ? centre + top : high, isSigned)), box,
    item.num_tokens > item.pieces.length && h("p", { class: "quiet small" }, `${(item.num_tokens - item.pieces.length).toLocaleString("en")} more tokens are not shown here; raw text has all.`)];
}

function scale(name, low, high, isSigned) {
  const kind = isSigned ? "both" : name === "logprob" ? "down" : "up";
  return h("p", { class: "scale small quiet" }, number(low, 3), h("span", { class: `ramp ${kind}`, "aria-hidden": "true" }), number(high, 3), ` ${name.replace("_", " ")}`);
}
