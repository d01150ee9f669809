// Times before now that a person chooses by a word.

export type Since = "hour" | "day" | "week";

const SPANS: Partial<Record<string, number>> = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 };

// Rounded, so that a query keeps its key while nothing changes.
const ROUND_MS = 60_000;

/** Return the time that a word of the address means; undefined for any time. */
export function sinceMs(word: string, nowMs: number): number | undefined {
  const span = SPANS[word];
  return span === undefined ? undefined : Math.floor((nowMs - span) / ROUND_MS) * ROUND_MS;
}
