// Figures and times as people read them. Texts with words come from texts.ts.

import { texts } from "@/texts";

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

export const count = (value: number): string => whole.format(value);

/** A figure in at most five characters; the exact one belongs on hover. */
export const shortCount = (value: number): string =>
  Math.abs(value) < 10_000 ? whole.format(value) : compact.format(value);

/** A duration in two parts at most: `340 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return parts(minutes, "min", Math.floor((ms % 60_000) / 1_000), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return parts(hours, "h", minutes % 60, "min");
  return parts(Math.floor(hours / 24), "d", hours % 24, "h");
}

const parts = (first: number, unit: string, rest: number, lesser: string): string =>
  rest ? `${first} ${unit} ${rest} ${lesser}` : `${first} ${unit}`;

const STEPS: [number, Intl.RelativeTimeFormatUnit, number][] = [
  [60_000, "second", 1_000],
  [3_600_000, "minute", 60_000],
  [86_400_000, "hour", 3_600_000],
  [604_800_000, "day", 86_400_000],
];

/** How long ago something was, or when it will be. */
export function ago(atMs: number, nowMs: number): string {
  const distance = atMs - nowMs;
  if (Math.abs(distance) < 5_000) return texts.common.justNow;
  for (const [below, unit, size] of STEPS) {
    if (Math.abs(distance) < below) return relative.format(Math.round(distance / size), unit);
  }
  return exact.format(atMs).split(",")[0] ?? exact.format(atMs);
}

export const exactTime = (atMs: number): string => exact.format(atMs);
export const clockTime = (atMs: number): string => clock.format(atMs);

/** The currency of the team's prices. */
let usual = "USD";
export const setCurrency = (currency: string): void => {
  usual = currency;
};

/** Money, always an estimate: `≈ $0.0123`. */
export const money = (amount: number, currency = usual): string => `≈ ${exactMoney(amount, currency)}`;

/** Money that the server has counted, in millionths: `$0.0123`. */
export const counted = (millionths: number): string => exactMoney(millionths / 1_000_000, usual);

function exactMoney(amount: number, currency: string): string {
  const digits = amount === 0 || Math.abs(amount) >= 1 ? 2 : 4;
  const style = {
    style: "currency",
    currency,
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  } as const;
  return new Intl.NumberFormat("en", style).format(amount);
}

export function bytes(size: number): string {
  if (size < 1_000) return `${size} B`;
  if (size < 1_000_000) return `${(size / 1_000).toFixed(1)} kB`;
  return `${(size / 1_000_000).toFixed(1)} MB`;
}

export type Tone = "good" | "warn" | "bad" | "busy" | "ask" | "calm";

const TONES: Record<string, Tone> = {
  success: "good",
  done: "good",
  partial: "warn",
  timeout: "warn",
  failed: "bad",
  refused: "bad",
  cancelled: "calm",
  unknown: "calm",
  waiting: "calm",
  running: "busy",
  asking: "ask",
};

/** The tone of a state. The word itself is always shown too. */
export const toneOf = (state: string): Tone => TONES[state] ?? "calm";
