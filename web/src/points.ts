/** Lets a pointer and the arrow keys choose a point of a chart, whose text is then shown and spoken. */
export function installPoints(): void {
  for (const figure of document.querySelectorAll<HTMLElement>("figure")) {
    const reading = figure.querySelector<HTMLElement>(".reading");
    if (reading) {
      reading.textContent = "Point at a value, or use Tab and the arrow keys.";
      reading.hidden = false;
    }
    for (const chart of figure.querySelectorAll<SVGSVGElement>("svg.chart")) install(chart, reading);
  }
}

function install(chart: SVGSVGElement, reading: HTMLElement | null): void {
  const points = [...chart.querySelectorAll<SVGGElement>("g.point")];
  const show = (point: SVGGElement) => {
    if (reading) reading.textContent = point.getAttribute("aria-label");
  };
  // A chart is a single stop of the Tab key; arrow keys move between the chart's points.
  points.forEach((point, index) => point.setAttribute("tabindex", index === 0 ? "0" : "-1"));
  for (const point of points) {
    point.addEventListener("pointerenter", () => show(point));
    point.addEventListener("focus", () => show(point));
    point.addEventListener("keydown", (event) => {
      const next = neighbour(points, point, event.key);
      if (!next) return;
      event.preventDefault();
      point.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
}

/** Left and right follow a line, up and down change to the nearest point of another line. */
function neighbour(points: SVGGElement[], from: SVGGElement, key: string): SVGGElement | undefined {
  const line = (point: SVGGElement) => point.dataset["line"];
  const own = points.filter((point) => line(point) === line(from));
  const place = own.indexOf(from);
  if (key === "ArrowRight") return own[place + 1];
  if (key === "ArrowLeft") return own[place - 1];
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const lines = [...new Set(points.map(line))];
  const other = lines[lines.indexOf(line(from)) + (key === "ArrowDown" ? 1 : -1)];
  const left = (point: SVGGElement) => point.getBoundingClientRect().left;
  const distance = (point: SVGGElement) => Math.abs(left(point) - left(from));
  return points.filter((point) => line(point) === other).sort((a, b) => distance(a) - distance(b))[0];
}
