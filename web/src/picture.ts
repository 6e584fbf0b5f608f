const SCALE = 2;
const MARGIN = 12;
const LINE = 20;
// A picture outside the page has no style sheet, so these become attributes.
const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "visibility",
];

interface Picture {
  image: CanvasImageSource;
  width: number;
  height: number;
}

/** Gives every chart a button that saves it as a PNG file. */
export function installPictures(): void {
  for (const figure of document.querySelectorAll<HTMLElement>("figure")) {
    if (!figure.querySelector("svg.chart, [data-series]")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    button.textContent = "PNG";
    button.title = "Save this chart as a PNG file";
    button.addEventListener("click", () => void save(figure));
    figure.append(button);
  }
}

async function save(figure: HTMLElement): Promise<void> {
  const picture = await pictureOf(figure);
  if (!picture) return;
  const canvas = composed(figure, picture);
  canvas.toBlob((blob) => {
    if (!blob) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${fileName(figure)}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }, "image/png");
}

async function pictureOf(figure: HTMLElement): Promise<Picture | undefined> {
  // A chart may have a drawing for a wide page and a drawing for a phone.
  const drawings = [...figure.querySelectorAll<SVGSVGElement>("svg.chart")];
  const svg = drawings.find((drawing) => drawing.getClientRects().length > 0);
  if (svg) return rendered(svg);
  const canvas = figure.querySelector("canvas");
  const { width, height } = canvas?.getBoundingClientRect() ?? { width: 0, height: 0 };
  return canvas && width > 0 ? { image: canvas, width, height } : undefined;
}

async function rendered(svg: SVGSVGElement): Promise<Picture> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(originals[index]!);
    for (const name of STYLES) element.setAttribute(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width * SCALE));
  copy.setAttribute("height", String(height * SCALE));
  const image = new Image();
  const text = new XMLSerializer().serializeToString(copy);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  return { image, width, height };
}

/** The chart with its title above and its legend below, on the page's background. */
function composed(figure: HTMLElement, { image, width, height }: Picture): HTMLCanvasElement {
  const title = captionOf(figure);
  const legend = [...figure.querySelectorAll<HTMLElement>(".u-legend .u-series")].slice(1);
  const canvas = document.createElement("canvas");
  const above = title ? LINE : 0;
  canvas.width = (width + 2 * MARGIN) * SCALE;
  canvas.height = (height + 2 * MARGIN + above + (legend.length ? LINE : 0)) * SCALE;
  const context = canvas.getContext("2d")!;
  const page = getComputedStyle(document.body);
  context.scale(SCALE, SCALE);
  context.fillStyle = page.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = page.color;
  context.textBaseline = "middle";
  context.font = `600 14px ${page.fontFamily}`;
  if (title) context.fillText(title, MARGIN, MARGIN + LINE / 2);
  context.drawImage(image, MARGIN, MARGIN + above, width, height);
  context.font = `12px ${page.fontFamily}`;
  let left = MARGIN;
  for (const entry of legend) {
    const marker = entry.querySelector(".u-marker");
    const name = entry.querySelector(".u-label")?.textContent ?? "";
    const middle = MARGIN + above + height + LINE / 2;
    context.fillStyle = marker ? getComputedStyle(marker).borderTopColor : page.color;
    context.fillRect(left, middle - 5, 10, 10);
    context.fillStyle = page.color;
    context.fillText(name, left + 14, middle);
    left += context.measureText(name).width + 30;
  }
  return canvas;
}

function captionOf(figure: HTMLElement): string {
  return figure.querySelector("figcaption")?.textContent?.trim() ?? "";
}

function fileName(figure: HTMLElement): string {
  const name = captionOf(figure) || document.title;
  return name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart";
}
