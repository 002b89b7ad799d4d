// The other responses of a group: wrong ones first, those with the same answer under one head.

import { address, h, length, number, verdict } from "../dom.js";
import { raw, rendered } from "../text.js";

export function siblings(data, params, unit, view) {
  const all = [data, ...data.siblings];
  const right = all.filter((item) => item.verdict === "correct").length;
  const groups = groupAnswers(data.siblings);
  return h("section", {}, h("h2", {}, "Siblings ", h("span", { class: "quiet small" }, `${right} of ${all.length} right, this one included`)),
    h("div", { class: "siblings" }, groups.map((items) => answer(items, params, unit, view))));
}

function groupAnswers(items) {
  const groups = new Map();
  for (const item of items) {
    const key = JSON.stringify([item.verdict, item.answer ?? item.text]);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  const isRight = (group) => (group[0].verdict === "correct" ? 1 : 0);
  return [...groups.values()].sort((a, b) => isRight(a) - isRight(b) || b.length - a.length);
}

// The first response of an answer; the others are built when they are asked for.
function answer(items, params, unit, view) {
  const [first, ...rest] = items;
  const isSame = rest.every((item) => item.text === first.text);
  const more = rest.length > 0 && h("details", { class: "small", ontoggle: () => { if (more.childElementCount < 2) more.append(h("div", { class: "more" }, rest.map((item) => sibling(item, params, unit, view, isSame)))); } },
    h("summary", { class: "quiet" }, `${rest.length} more ${isSame ? "with the same text" : "with this answer"}`));
  return h("div", { class: "answer-group" },
    h("p", { class: "meta" }, verdict(first.verdict), h("strong", { class: "break" }, first.answer ?? "no answer read"), items.length > 1 && h("span", {}, `× ${items.length}`)),
    sibling(first, params, unit, view, false), more);
}

function sibling(item, params, unit, view, isBare) {
  const place = { ...params, whole: "", file: item.file, row: item.row };
  const facts = [item.reward !== null && `reward ${number(item.reward, 3)}`, item.length !== null && length(item.length, unit), item.finish === "length" && "cut"].filter(Boolean);
  return h("article", { class: "response" },
    h("a", { class: "meta", href: address("rollout", place), "data-item": `${item.file}:${item.row}` }, facts.length ? facts.map((words) => h("span", {}, words)) : "open"),
    !isBare && (view === "raw" ? raw(item.text) : rendered(item.text)),
    item.note && h("p", { class: "small quiet note" }, item.note));
}
