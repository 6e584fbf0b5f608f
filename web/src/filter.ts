/** Shows the filter fields: a field hides table rows that lack one of the field's words. */
export function installFilters(): void {
  for (const field of document.querySelectorAll<HTMLInputElement>("input[data-filter]")) {
    const table = document.getElementById(field.dataset["filter"] ?? "");
    const label = field.closest("label");
    if (!table || !label) continue;
    const rows = [...table.querySelectorAll<HTMLTableRowElement>("tbody tr")];
    const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    const count = label.querySelector("output");
    label.hidden = false;
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        const fits = words.every((word) => texts[index]!.includes(word));
        row.hidden = !fits;
        if (fits) shown += 1;
      });
      if (count) count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
    });
  }
}
