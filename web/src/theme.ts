type Theme = "light" | "dark";

const KEY = "weir-theme";

/** Shows the theme button. Until the user presses the button, the theme follows the system's setting. */
export function installTheme(onChange: () => void): void {
  const button = document.getElementById("theme");
  if (!(button instanceof HTMLButtonElement)) return;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = (): Theme =>
    (document.documentElement.dataset["theme"] as Theme | undefined) ??
    (dark.matches ? "dark" : "light");
  const label = () => {
    button.textContent = current() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${button.textContent.toLowerCase()} theme`);
  };

  const kept = recall();
  if (kept) document.documentElement.dataset["theme"] = kept;
  button.hidden = false;
  label();
  button.addEventListener("click", () => {
    const next: Theme = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset["theme"] = next;
    remember(next);
    label();
    onChange();
  });
  dark.addEventListener("change", () => {
    label();
    onChange();
  });
}

// In some browsers storage throws for a file opened from disk: the report then keeps no theme.
function recall(): Theme | undefined {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : undefined;
  } catch {
    return undefined;
  }
}

function remember(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The choice lasts for this page only.
  }
}
