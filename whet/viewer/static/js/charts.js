// Lines: small ones as SVG, large ones by uPlot; and bars.

import { h, number, put, svg } from "./dom.js";

/* global uPlot */

export const COLOURS = 8;

export function colour(index) {
  return style(`--line-${index % COLOURS}`);
}

export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function spark(values, words) {
  const width = 120;
  const height = 28;
  if (values.length < 2) return h("span", { class: "quiet" }, "–");
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const points = values.map((value, i) => `${((i / (values.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 3 - ((value - low) / span) * (height - 6)).toFixed(1)}`);
  const [x, y] = points.at(-1).split(",");
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words },
    svg("polyline", { points: points.join(" ") }), svg("circle", { cx: x, cy: y, r: 2.2 }));
}

// A running mean that starts unbiased, as TensorBoard's does.
export function smooth(values, weight) {
  if (!weight) return values;
  let last = 0;
  let count = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

// What several lines have at each step: their mean, and the least and the most.
export function summarise(columns) {
  const known = columns[0].map((_, i) => columns.map((column) => column[i]).filter((value) => value !== null && value !== undefined));
  const each = (pick) => known.map((values) => (values.length ? pick(values) : null));
  return {
    mean: each((values) => values.reduce((a, b) => a + b, 0) / values.length),
    low: each((values) => Math.min(...values)),
    high: each((values) => Math.max(...values)),
  };
}

// A flat line gets a little room around it; uPlot would draw one of zeros from 0 to 100.
function pad(low, high) {
  if (low === null || high === null) return [0, 1];
  if (low !== high) return uPlot.rangeNum(low, high, 0.1, true);
  if (low === 0) return [0, 1];
  const room = 0.1 * Math.abs(low);
  return [low - room, high + room];
}

// The value of a line at a step, or its last before it: runs do not log at the same steps.
function valueAt(line, step) {
  if (!line.steps.length || step < line.steps[0] || step > line.steps.at(-1)) return null;
  let low = 0;
  let high = line.steps.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (line.steps[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return line.values[low];
}

// lines: [{name, steps, values, colour, width, band: [lows, highs]}]; about says what the title means.
export function lineChart({ title, lines, range, onRange, about, format = number, height = 190 }) {
  const place = h("div", { class: "plot" });
  const readout = h("div", { class: "readout", hidden: true, "aria-hidden": "true" });
  const box = h("figure", { class: "chart", "data-metric": title }, h("figcaption", {}, h("span", { class: "metric", title: about }, title)), h("div", { class: "stage" }, place, readout));
  let plot = null;

  // A band is two lines that are not drawn, and what is between them.
  function join() {
    const tables = lines.flatMap((line) => [[line.steps, line.values], ...(line.band ?? []).map((values) => [line.steps, values])]);
    return uPlot.join(tables);
  }

  function series() {
    const list = [{}];
    const bands = [];
    for (const line of lines) {
      const points = { show: line.steps.length < 3, size: 5 };
      list.push({ label: line.name, stroke: line.colour, width: line.width ?? 1.6, spanGaps: true, points });
      if (!line.band) continue;
      for (let i = 0; i < 2; i += 1) list.push({ label: "", width: 0, spanGaps: true, points: { show: false } });
      bands.push({ series: [list.length - 1, list.length - 2], fill: `${line.colour}33` });
    }
    return { list, bands };
  }

  function showReadout(u) {
    const at = u.cursor.idx;
    const isHere = box.matches(":hover") && at !== null && at !== undefined;
    readout.hidden = !isHere;
    if (!isHere) return;
    const step = u.data[0][at];
    const known = lines.map((line) => ({ line, value: valueAt(line, step) })).filter(({ value }) => value !== null && value !== undefined);
    put(readout, h("div", { class: "quiet" }, `step ${number(step)}`), known.map(({ line, value }) => h("div", { class: "entry" },
      h("span", { class: "swatch", vars: { background: line.colour } }), h("span", { class: "name" }, line.name), h("span", { class: "value" }, format(value)))));
    const isLeft = u.cursor.left > u.over.clientWidth / 2;
    readout.classList.toggle("left", isLeft);
  }

  function draw() {
    plot?.destroy();
    const grid = { stroke: style("--rule"), width: 1 };
    const axis = { stroke: style("--quiet"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const { list, bands } = series();
    const options = {
      width: Math.max(place.clientWidth, 200),
      height,
      legend: { show: false },
      cursor: { sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false, ...(range ? { range: () => range } : {}) }, y: { range: (_, low, high) => pad(low, high) } },
      axes: [{ ...axis, size: 28 }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => number(tick, 3)) }],
      series: list,
      bands,
      hooks: {
        setCursor: [showReadout],
        setSelect: [(u) => {
          if (u.select.width > 4 && onRange) onRange([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        }],
      },
    };
    plot = new uPlot(options, join(), place);
    plot.over.addEventListener("dblclick", () => onRange?.(null));
    plot.over.addEventListener("mouseleave", () => { readout.hidden = true; });
  }

  const resizer = new ResizeObserver(() => {
    if (!plot && place.clientWidth) draw();
    else if (plot && Math.abs(plot.width - place.clientWidth) > 2 && place.clientWidth) plot.setSize({ width: place.clientWidth, height });
  });
  resizer.observe(place);
  const onTheme = () => draw();
  addEventListener("themechange", onTheme);
  const words = lines.map((line) => `${line.name}: ${number(line.values.at(-1))}`).join("; ");
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `${title} over steps. Last values: ${words}`);
  const shape = (items) => JSON.stringify(items.map((line) => [line.name, line.colour, line.width, Boolean(line.band)]));
  return {
    element: box,
    update(next, nextRange) {
      const isSame = shape(next) === shape(lines) && !range && !nextRange;  // a range is drawn in
      lines = next;
      range = nextRange;
      if (plot && isSame) plot.setData(join());
      else if (plot) draw();
    },
    close() { resizer.disconnect(); removeEventListener("themechange", onTheme); plot?.destroy(); },
  };
}

// One bar of parts: [{name, value, colour}]
export function stackedBar(parts, format) {
  const total = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  return h("div", { class: "stack", role: "img", "aria-label": parts.map((part) => `${part.name} ${format(part.value)}`).join(", ") },
    parts.filter((part) => part.value > 0).map((part) => h("span", { title: `${part.name}: ${format(part.value)}`, vars: { width: `${(100 * part.value) / total}%`, background: part.colour } })));
}
