// The rows of spend: sorted, and as a file for spreadsheets.

import type { SpendRow } from "@/views/agents/figures";

export const BY = ["agent", "user", "capability", "model", "day"] as const;
export type By = (typeof BY)[number];

export const COLUMNS = [
  "runs",
  "delegations",
  "failed",
  "refused",
  "prompt",
  "completion",
  "tokens",
  "cost",
  "p95_ms",
] as const;
export type Column = (typeof COLUMNS)[number] | "key";

export interface Sort {
  column: Column;
  down: boolean;
}

/** Sort rows by a column; what is unknown comes last, whichever way. */
export function sorted(rows: SpendRow[], { column, down }: Sort): SpendRow[] {
  return [...rows].sort((one, other) => {
    const [a, b] = [one[column], other[column]];
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    const order = typeof a === "string" ? a.localeCompare(String(b)) : a - Number(b);
    return (down ? -order : order) || one.key.localeCompare(other.key);
  });
}

/** Read the order from an address: `tokens`, or `-tokens` for the highest first. */
export function sortIn(text: string | null, by: By): Sort {
  const column = (text ?? "").replace(/^-/, "");
  const known = column === "key" || COLUMNS.some((each) => each === column);
  if (known) return { column: column as Column, down: (text ?? "").startsWith("-") };
  return by === "day" ? { column: "key", down: true } : { column: "tokens", down: true };
}

export const sortName = ({ column, down }: Sort): string => (down ? `-${column}` : column);

/** The order after a click on a column: the highest first, then the lowest. */
export const turned = (sort: Sort, column: Column): Sort =>
  sort.column === column ? { column, down: !sort.down } : { column, down: column !== "key" };

const FIELDS = [
  "runs",
  "delegations",
  "succeeded",
  "failed",
  "cancelled",
  "refused",
  "prompt",
  "completion",
  "cached",
  "tokens",
  "total_tokens",
  "overrun",
  "cost",
  "unpriced_tokens",
  "p50_ms",
  "p95_ms",
] as const satisfies (keyof SpendRow)[];

/** Return rows as CSV (RFC 4180). The cost says its currency, and that it is an estimate. */
export function csvOf(rows: SpendRow[], by: By, currency: string): string {
  const head = FIELDS.map((field) => (field === "cost" ? `cost_estimate_${currency.toLowerCase()}` : field));
  const lines = rows.map((row) => [row.key, ...FIELDS.map((field) => row[field] ?? "")]);
  return [[by, ...head], ...lines].map((line) => line.map(cell).join(",") + "\r\n").join("");
}

/** A name from elsewhere must not become a formula in a spreadsheet. */
function cell(value: string | number): string {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
