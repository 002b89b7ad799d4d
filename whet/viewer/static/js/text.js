// Text of models, raw or rendered: paragraphs, code, emphasis and LaTeX. All of it as text nodes;
// KaTeX builds elements itself and trusts nothing.

import { h } from "./dom.js";

let katex = null;
const MATH = /\$\$([\s\S]{1,4000}?)\$\$|\\\[([\s\S]{1,4000}?)\\\]|\\\(([\s\S]{1,2000}?)\\\)|\$(?!\s)([^$\n]{1,1000}?)(?<!\s)\$(?!\d)|(\\boxed\{(?:[^{}]|\{[^{}]*\}){0,500}\})/g;
const FENCE = /```[^\n]*\n([\s\S]*?)(?:```|$)/g;
const THOUGHT = /<(think|thinking|thought|reasoning)>([\s\S]*?)(?:<\/\1>|$)/g;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;
const MAX_FORMULAS = 400;
const MAX_RENDERED = 60000;

export async function loadMath() {
  if (!katex) {
    await import("/static/vendor/katex.min.js");
    katex = globalThis.katex;
  }
}

export function raw(text) {
  return h("pre", { class: "text", tabindex: "0", "aria-label": "Text" }, text);
}

export function rendered(text) {
  const state = { formulas: 0 };
  const rest = text.length - MAX_RENDERED;
  if (rest > 0) text = text.slice(0, MAX_RENDERED);
  const box = h("div", { class: "text rendered", tabindex: "0", role: "group", "aria-label": "Rendered text" });
  split(text, THOUGHT, (match) => h("details", { class: "thought" }, h("summary", {}, "Thought"), blocks(match[2], state)), (part) => blocks(part, state))
    .forEach((node) => box.append(node));
  if (rest > 0) box.append(h("p", { class: "quiet" }, `${rest.toLocaleString("en")} more characters: raw text has all.`));
  return box;
}

// A text on one line, with its formulas.
export function line(text) {
  return h("span", {}, inline(text.replace(/\s+/g, " "), { formulas: 0 }));
}

function blocks(text, state) {
  const out = h("div", {});
  const nodes = split(text, FENCE, (match) => h("pre", { class: "code" }, match[1]), (part) => paragraphs(part, state));
  nodes.forEach((node) => out.append(node));
  return out;
}

function paragraphs(text, state) {
  const out = document.createDocumentFragment();
  for (const part of text.split(/\n{2,}/)) {
    if (!part.trim()) continue;
    const heading = /^(#{1,4})\s+([^\n]+)$/.exec(part.trim());
    out.append(heading ? h("p", { class: "heading" }, inline(heading[2], state)) : h("p", {}, inline(part, state)));
  }
  return out;
}

function inline(text, state) {
  return split(text, MATH, (match) => formula(match, state), (part) => emphasis(part));
}

function emphasis(text) {
  const out = document.createDocumentFragment();
  for (const node of split(text, INLINE, (m) => (m[1] !== undefined ? h("code", {}, m[1]) : h("strong", {}, m[2])), (part) => part)) out.append(node);
  return out;
}

function formula(match, state) {
  const isDisplay = match[1] !== undefined || match[2] !== undefined;
  const tex = match[1] ?? match[2] ?? match[3] ?? match[4] ?? match[5];
  if (!katex || state.formulas >= MAX_FORMULAS) return match[0];
  state.formulas += 1;
  const box = h("span", { class: isDisplay ? "formula display" : "formula" });
  try {
    katex.render(tex, box, { displayMode: isDisplay, trust: false, strict: "ignore", throwOnError: true, maxExpand: 200, maxSize: 20, output: "html" });
  } catch {
    return match[0];
  }
  return box;
}

// Cut text at the matches of a pattern; the parts between go through another function.
function split(text, pattern, onMatch, onRest) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) nodes.push(onRest(text.slice(end, match.index)));
    nodes.push(onMatch(match));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(onRest(text.slice(end)));
  return nodes;
}
