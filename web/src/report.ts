import "uplot/dist/uPlot.min.css";
import "./report.css";
import { drawSeries, redrawAll } from "./series";
import { readData } from "./data";
import { installPictures } from "./picture";
import { installTheme } from "./theme";

const data = readData();
installTheme(redrawAll);
installPictures();

// A report holds dozens of cells: a chart is drawn when its cell is first opened.
for (const cell of document.querySelectorAll<HTMLDetailsElement>("details.cell")) {
  cell.addEventListener("toggle", () => {
    if (cell.open) drawSeries(cell, data);
  });
  if (cell.open) drawSeries(cell, data);
}

// The page of a measurement has one set of charts, and they are its main content.
for (const section of document.querySelectorAll<HTMLElement>("section.charted")) {
  drawSeries(section, data);
}

// Paper has no triangles to click: collapsed sections are printed open.
let opened: HTMLDetailsElement[] = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll<HTMLDetailsElement>("details.print:not([open])")];
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
