// The filters of the list of runs: they live in the address, and can be kept under a name in this browser.

export interface Filters {
  q: string;
  user: string;
  agent: string;
  status: string;
  state: string;
  code: string;
  correlation: string;
  /** A period before now: `15m`, `1h`, `24h`, `7d`. */
  since: string;
}

export const NO_FILTERS: Filters = {
  q: "",
  user: "",
  agent: "",
  status: "",
  state: "",
  code: "",
  correlation: "",
  since: "",
};
const NAMES = Object.keys(NO_FILTERS) as (keyof Filters)[];

const PERIODS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Return the filters in a query string; what is not known is ignored. */
export function filtersIn(query: string): Filters {
  const given = new URLSearchParams(query);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""])) as unknown as Filters;
}

/** Return filters as a query string, always in the same order. */
export function queryOf(filters: Filters): string {
  return new URLSearchParams(
    NAMES.filter((name) => filters[name]).map((name) => [name, filters[name]]),
  ).toString();
}

export const areEmpty = (filters: Filters): boolean => NAMES.every((name) => filters[name] === "");

/** Return what the server is asked. The period ends at a whole minute, so that equal questions are asked once. */
export function askedOf(filters: Filters, nowMs: number): Record<string, string | number> {
  const { since, ...rest } = filters;
  const asked: Record<string, string | number> = Object.fromEntries(
    Object.entries(rest).filter(([, value]) => value !== ""),
  );
  const sinceMs = periodMs(since);
  if (sinceMs) asked.since_ms = Math.floor((nowMs - sinceMs) / 60_000) * 60_000;
  return asked;
}

export function periodMs(period: string): number {
  const found = /^(\d{1,4})([mhd])$/.exec(period);
  return found ? Number(found[1]) * (PERIODS[found[2] ?? ""] ?? 0) : 0;
}

export interface SavedFilters {
  name: string;
  query: string;
}

// A key of its own: nothing else of the page is kept there.
const KEY = "remit.runs.filters";
const MOST = 50;

export function savedFilters(): SavedFilters[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isSaved) : [];
  } catch {
    return [];
  }
}

const isSaved = (value: unknown): value is SavedFilters =>
  typeof value === "object" &&
  value !== null &&
  typeof (value as SavedFilters).name === "string" &&
  typeof (value as SavedFilters).query === "string";

/** Return the list with one more; one of the same name is replaced. */
export function withSaved(list: SavedFilters[], saved: SavedFilters): SavedFilters[] {
  return [...list.filter((each) => each.name !== saved.name), saved].slice(-MOST);
}

export function keepFilters(list: SavedFilters[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(list));
  } catch {
    // A private window may not keep anything; the address still holds the filters.
  }
}

/** Return the runs of a fresh first page before the older ones that are known. */
export function freshened<T extends { run: string }>(known: T[], fresh: T[]): T[] {
  const there = new Set(fresh.map((each) => each.run));
  return [...fresh, ...known.filter((each) => !there.has(each.run))];
}
