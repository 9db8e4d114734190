"use strict";
// Saves a figure as it is drawn here, or its data, without asking any server.
const SVG = "http://www.w3.org/2000/svg";

function drawing(figure) {
  const svg = figure.querySelector("svg").cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  svg.setAttribute("width", width + "pt");
  svg.setAttribute("height", height + "pt");
  svg.setAttribute("color", "#1a1b1c");
  const ground = document.createElementNS(SVG, "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", "#ffffff");
  svg.prepend(ground);
  return new XMLSerializer().serializeToString(svg);
}

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

document.addEventListener("click", (event) => {
  const kind = event.target.dataset?.kind;
  if (!kind) return;
  const figure = event.target.closest("figure");
  if (kind === "svg") save(figure.id + ".svg", "image/svg+xml", drawing(figure));
  else save(figure.id + ".csv", "text/csv", JSON.parse(figure.querySelector("script").textContent));
});
