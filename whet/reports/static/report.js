// Hover and arrow keys: a tooltip for bars, a cursor with a tooltip for curves. The page reads well without it.
"use strict";

const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(Math.max(8, x - tip.offsetWidth / 2), document.documentElement.clientWidth - tip.offsetWidth - 8);
  const top = y - tip.offsetHeight - 12;
  tip.style.left = `${left}px`;
  tip.style.top = `${top < 8 ? y + 16 : top}px`;
}

function hideTip() {
  tip.hidden = true;
}

for (const bar of document.querySelectorAll("[data-tip]")) {
  bar.addEventListener("pointermove", (event) => showTip(bar.dataset.tip, event.clientX, event.clientY));
  bar.addEventListener("pointerleave", hideTip);
}

for (const plot of document.querySelectorAll("svg[data-points]")) {
  const points = JSON.parse(plot.dataset.points);
  const line = plot.querySelector("line.cursor");
  const dot = plot.querySelector("circle.cursor");
  let current = points.length - 1;

  function show(index) {
    current = Math.min(Math.max(0, index), points.length - 1);
    const [x, y, text] = points[current];
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
    plot.classList.add("active");
    const box = plot.getBoundingClientRect();
    const scale = box.width / plot.viewBox.baseVal.width;
    showTip(text, box.left + x * scale, box.top + y * scale);
  }

  function hide() {
    plot.classList.remove("active");
    hideTip();
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) * plot.viewBox.baseVal.width) / box.width;
    const distances = points.map((point) => Math.abs(point[0] - x));
    show(distances.indexOf(Math.min(...distances)));
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    show(current + move);
  });
}

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
