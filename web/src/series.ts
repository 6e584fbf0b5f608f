import uPlot from "uplot";
import type { Series } from "./data";

const HEIGHT = 190;
const COLOURS = 8;
const drawn = new Map<HTMLElement, { plot: uPlot; series: Series }>();

/** Draws every chart of `cell` that is not drawn yet. */
export function drawSeries(cell: HTMLElement, data: Series[]): void {
  const boxes = [...cell.querySelectorAll<HTMLElement>("[data-series]")];
  const sync = uPlot.sync(cell.id);
  for (const box of boxes) {
    const series = data[Number(box.dataset["series"])];
    if (series && !drawn.has(box)) draw(box, series, sync.key);
  }
}

/** Canvases do not follow style sheets: a change of theme draws them anew. */
export function redrawAll(): void {
  for (const [box, { plot, series }] of [...drawn]) {
    const key = plot.cursor.sync?.key ?? "";
    plot.destroy();
    drawn.delete(box);
    draw(box, series, key);
  }
}

function draw(box: HTMLElement, series: Series, syncKey: string): void {
  const data: uPlot.AlignedData = [series.time, ...series.lines.map((line) => line.values)];
  const plot = new uPlot(options(box, series, syncKey), data, box);
  drawn.set(box, { plot, series });
  resizes.observe(box);
}

const resizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const known = drawn.get(target as HTMLElement);
    if (known && contentRect.width > 0) known.plot.setSize({ width: contentRect.width, height: HEIGHT });
  }
});

function options(box: HTMLElement, series: Series, syncKey: string): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const grid = { stroke: colour("--grid"), width: 1 };
  const axis = { stroke: colour("--muted"), font, labelFont: font, ticks: { show: false } };
  const units = [...new Set(series.lines.map((line) => line.unit))];

  return {
    width: box.clientWidth || 480,
    height: HEIGHT,
    cursor: { sync: { key: syncKey }, points: { size: 6 }, drag: { x: true, y: false } },
    scales: {
      x: { time: false },
      ...Object.fromEntries(units.map((unit) => [`y ${unit}`, { range: fromZero }])),
    },
    axes: [
      { ...axis, grid: { show: false }, size: 34, values: (_, splits) => splits.map((t) => `${t} s`) },
      ...units.slice(0, 2).map((unit, side) => ({
        ...axis,
        scale: `y ${unit}`,
        side: side === 0 ? (3 as const) : (1 as const),
        grid: side === 0 ? grid : { show: false },
        size: 52,
        label: unit,
        labelSize: 18,
        values: (_: uPlot, splits: number[]) => splits.map(short),
      })),
    ],
    series: [
      { label: "time", value: (_, t) => (t == null ? "–" : `${t.toFixed(2)} s`) },
      ...series.lines.map((line, index) => ({
        label: line.name,
        scale: `y ${line.unit}`,
        stroke: colour(`--c${index % COLOURS}`),
        width: 1.5,
        points: { show: false },
        value: (_: uPlot, value: number | null) =>
          value == null ? "–" : `${short(value)} ${line.unit}`.trim(),
      })),
    ],
  };
}

function fromZero(_: uPlot, low: number | null, high: number | null): uPlot.Range.MinMax {
  const top = Math.max(high ?? 0, 0);
  const bottom = Math.min(low ?? 0, 0);
  return top === bottom ? [0, 1] : [bottom, top + (top - bottom) * 0.06];
}

function short(value: number): string {
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}
