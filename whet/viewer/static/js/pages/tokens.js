// The tokens of a response, coloured by a measure of each; the value of one is shown in words when it
// is pointed at, tapped, or reached with the arrow keys.

import { h, number, put } from "../dom.js";

export const COLOURS = [["", "nothing"], ["advantage", "advantage"], ["logprob", "log-probability"], ["ratio", "ratio"], ["entropy", "entropy"], ["mask", "mask"], ["engine_gap", "engine–learner gap"], ["step_credit", "step credit"]];
const SIGNED = ["advantage", "step_credit", "engine_gap", "ratio"];
// Scales that are the same for all responses, so that one colour is one value: the ends.
const FIXED = { logprob: [-5, 0], entropy: [0, 3], mask: [0, 1], advantage: [-3, 3] };

export function wordsOf(name) {
  return COLOURS.find(([key]) => key === name)?.[1] ?? name.replaceAll("_", " ");
}

export function tokens(item, name) {
  const values = name ? item.columns[name] : undefined;
  const known = (values ?? []).filter((value) => value !== null);
  const shade = values ? makeShade(name, known) : null;
  const readout = h("p", { class: "token-value small", role: "status" }, HINT);
  const spans = item.pieces.map((piece, i) => {
    const span = h("span", { class: "token", "data-token": i }, piece);
    const value = values?.[i];
    if (shade && value !== null && value !== undefined) {
      const { tint, strength } = shade.of(value);
      span.classList.add(tint);
      span.style.setProperty("--strength", `${Math.round(70 * strength)}%`);
    }
    return span;
  });
  let chosen = -1;
  function choose(at) {
    spans[chosen]?.classList.remove("chosen");
    chosen = Math.min(Math.max(at, 0), spans.length - 1);
    spans[chosen].classList.add("chosen");
    put(readout, describe(item, chosen));
  }
  const pick = (event) => { const at = event.target.closest?.(".token")?.dataset.token; if (at !== undefined) choose(Number(at)); };
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen + step);
    spans[chosen].scrollIntoView({ block: "nearest" });
  };
  const box = h("pre", { class: "text tokens", tabindex: "0", "aria-label": "Tokens of the response; the arrow keys go through them", onpointerover: pick, onclick: pick, onkeydown: onKey }, spans);
  const rest = item.num_tokens - item.pieces.length;
  return [shade && scale(name, shade), box, spans.length > 0 && readout,
    rest > 0 && h("p", { class: "quiet small" }, `${rest.toLocaleString("en")} more tokens are not shown here; raw text has all.`)];
}

const HINT = "Point at a token, tap it, or use the arrow keys to see its values.";

function describe(item, at) {
  const entries = Object.entries(item.columns).filter(([, values]) => values[at] !== null && values[at] !== undefined);
  const value = ([name, values]) => `${wordsOf(name)} ${number(values[at], 4).replace("-", "−")}${name === "logprob" ? ` (${(100 * Math.exp(values[at])).toPrecision(3)} %)` : ""}`;
  return [h("span", { class: "quiet" }, `token ${at + 1} of ${item.num_tokens} `), h("code", {}, JSON.stringify(item.pieces[at]).slice(1, -1)), entries.map((entry) => h("span", {}, value(entry)))];
}

function makeShade(name, known) {
  const centre = name === "ratio" ? 1 : 0;
  const isSigned = SIGNED.includes(name) || (known.some((value) => value > 0) && known.some((value) => value < 0));
  const top = Math.max(...known.map((value) => Math.abs(value - centre)), 1e-9);
  const [low, high] = FIXED[name] ?? (isSigned ? [centre - top, centre + top] : [Math.min(...known, 0), Math.max(...known, 0)]);
  const isFlat = isSigned && top < 1e-7 && name !== "engine_gap";
  const limit = (share) => Math.min(Math.max(share, 0), 1);
  const of = (value) => {
    if (isFlat) return { tint: "positive", strength: 0 };
    if (isSigned) return { tint: value < centre ? "negative" : "positive", strength: limit(Math.abs(value - centre) / (high - centre || 1)) };
    const share = limit((value - low) / (high - low || 1));
    // A low log-probability is what one looks for: the scale is turned round.
    return { tint: "positive", strength: name === "logprob" ? 1 - share : share };
  };
  return { of, low, high, isSigned, isFlat, centre, isFixed: name in FIXED };
}

function scale(name, { low, high, isSigned, isFlat, centre, isFixed }) {
  if (isFlat) return h("p", { class: "scale small quiet" }, `${wordsOf(name)} is ${centre} at every token`);
  const kind = isSigned ? "both" : name === "logprob" ? "down" : "up";
  const end = (value, sign) => `${isFixed && value && name !== "mask" ? `${sign} ` : ""}${number(value, 3).replace("-", "−")}`;
  return h("p", { class: "scale small quiet" }, end(low, "≤"), h("span", { class: `ramp ${kind}`, "aria-hidden": "true" }), end(high, "≥"), ` ${wordsOf(name)}`);
}
