// Elements from data. Text becomes text nodes only; nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") {
      for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    } else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(9).filter((child) => child !== null && child !== undefined && child !== false);
}

export function put(parent, ...children) {
  parent.replaceChildren(...flat(children));
  return parent;
}

// Addresses are made here alone, of a page's name and encoded values: data cannot choose a scheme.
export function address(page, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

export function link(page, params, ...children) {
  return h("a", { href: address(page, params) }, ...children);
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

// A moment as files have it, in UTC, to the minute.
export function moment(text) {
  return text ? `${String(text).slice(0, 16).replace("T", " ")} UTC` : "–";
}

export function count(value, word) {
  return `${number(value)} ${word}${value === 1 ? "" : "s"}`;
}

// A level as maps count it, in five bands, and as files have it, from 0 to 1.
export function level(value) {
  if (value === null || value === undefined) return "–";
  return `${Math.min(Math.floor(value * 5), 4) + 1} (${number(value, 2)})`;
}

// A length; texts that no model sampled have none.
export function length(value, unit) {
  return value === null || value === undefined ? "–" : count(value, unit);
}

// A button that copies a text, also where the page is not a secure one.
export function copyButton(text, name) {
  const button = h("button", { class: "plain copy", type: "button", "aria-label": `Copy ${name}`, title: `Copy ${name}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      const area = h("textarea", { class: "aside", value: text(), "aria-hidden": "true" });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    put(button, "copied");
    setTimeout(() => put(button, "copy"), 1200);
  } }, "copy");
  return button;
}

// A value of a metric: those that are shares in percent.
export function metricValue(name, value) {
  return /^(score\/correct|validation\/pass@)/.test(name ?? "") && value !== null && value !== undefined ? percent(value) : number(value);
}

// Words of the documentation, whose names stand in backticks.
export function words(text) {
  return String(text).split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 10) return `${Math.floor(Math.round(seconds) / 60)} min ${Math.round(seconds) % 60} s`;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  return minutes < 48 * 60 ? `${(minutes / 60).toFixed(1)} h` : `${(minutes / 1440).toFixed(1)} d`;
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (count >= 1000 && unit < 3) { count /= 1000; unit += 1; }
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

const VERDICTS = {
  correct: ["●", "correct"],
  wrong: ["○", "wrong"],
  no_answer: ["–", "no answer"],
  unscored: ["?", "unscored"],
};

export function verdict(name) {
  const [sign, words] = VERDICTS[name] ?? ["·", name ?? ""];
  return h("span", { class: `verdict ${name in VERDICTS ? name : ""}` }, h("span", { "aria-hidden": "true" }, sign), ` ${words}`);
}

export function estimate(value) {
  return h("span", { class: "nowrap" }, percent(value.mean), " ",
    h("span", { class: "quiet" }, `[${(100 * value.low).toFixed(1)}, ${(100 * value.high).toFixed(1)}]`));
}

export function isEstimate(value) {
  return value !== null && typeof value === "object" && "mean" in value && "low" in value && "high" in value;
}

export function empty(title, ...words) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, ...words));
}

export function table(heads, rows, props = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": props.label ?? "Table" },
    h("table", { class: props.class },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head?.class }, head?.text ?? head)))),
      h("tbody", {}, rows)));
}

export function field(label, control) {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export function select(name, value, options, onchange) {
  return h("select", { name, onchange: (event) => onchange(event.target.value) },
    options.map(([key, words]) => h("option", { value: key, selected: key === (value ?? "") }, words)));
}
