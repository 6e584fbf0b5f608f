import "uplot/dist/uPlot.min.css";
import "./report.css";
import { drawSeries, redrawAll } from "./series";
import { readData } from "./data";
import { installFilters } from "./filter";
import { installPictures } from "./picture";
import { installPoints } from "./points";
import { installTheme } from "./theme";

const data = readData();
installTheme(redrawAll);
installPictures();
installPoints();
installFilters();

/** The name behind the `#` of the address. A link may be malformed. */
function targetName(): string {
  const name = location.hash.slice(1);
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// A link into a closed part opens this part and the parts around it.
function openTarget(): void {
  const target = document.getElementById(targetName());
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

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
