/** One chart of one cell, as `html/embed.rs` writes it. */
export interface Series {
  name: string;
  time: number[];
  lines: { name: string; unit: string; values: (number | null)[] }[];
}

export function readData(): Series[] {
  const element = document.getElementById("series-data");
  return element?.textContent ? (JSON.parse(element.textContent) as Series[]) : [];
}
