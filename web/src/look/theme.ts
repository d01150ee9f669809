// Light or dark: as the system says, until a person chooses.

import { useState } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "remit.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

function applyTheme(theme: Theme = chosen()): void {
  const name = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = name;
}

/** Set the theme of the page, and follow the system from then on; called before the first paint. */
export function startTheme(): void {
  applyTheme();
  dark.addEventListener("change", () => applyTheme());
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(chosen);
  const choose = (now: Theme) => {
    if (now === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, now);
    applyTheme(now);
    setTheme(now);
  };
  return [theme, choose];
}
