// What the panel of a delegation works out from what the server says.

import type { components } from "@/api/operator";
import type { Tone } from "@/look/format";

type Schemas = components["schemas"];
/** Envelopes are sent without the fields that have their default. */
type Sent<T> = Partial<T>;
export type Response = Sent<Omit<Schemas["Response"], "fault">> & {
  fault?: (Sent<Schemas["Fault"]> & Pick<Schemas["Fault"], "code" | "message">) | null;
};
export type Detail = Omit<Schemas["DelegationDetail"], "response"> & { response: Response | null };
export type Verdict = Schemas["RecordedVerdict"];
export type Advice = Schemas["Advice"];
export type MessageView = Schemas["MessageView"];

// As `policy/redaction.py` writes them: `[EMAIL:kqzwpnbtrlmx]`.
const TOKEN = /\[([A-Z][A-Z0-9_]{0,31}):[bcdfghjklmnpqrstvwxz]{12}\]/g;

export interface TextPart {
  text: string;
  /** The kind of the value that a token stands for; empty for plain text. */
  kind: string;
}

/** Split a text at its redaction tokens. */
export function splitTokens(text: string): TextPart[] {
  const parts: TextPart[] = [];
  let end = 0;
  for (const found of text.matchAll(TOKEN)) {
    if (found.index > end) parts.push({ text: text.slice(end, found.index), kind: "" });
    parts.push({ text: found[0], kind: found[1] ?? "" });
    end = found.index + found[0].length;
  }
  if (end < text.length) parts.push({ text: text.slice(end), kind: "" });
  return parts;
}

/** Return a JSON value as people read it: texts as they are, the rest indented. */
export function readable(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

export type BarName = "caller" | "left" | "granted" | "own" | "below" | "back" | "used" | "queued";

export interface Bar {
  name: BarName;
  value: number;
  /** Where it begins and how long it is, as shares of the widest bar. */
  start: number;
  share: number;
}

/** Return bars over one scale; those that begin later stand after the parts before them. */
function scaled(entries: [BarName, number | null, number?][]): Bar[] {
  const known = entries.filter((each): each is [BarName, number, number?] => each[1] !== null);
  const widest = Math.max(1, ...known.map(([, value, start]) => value + (start ?? 0)));
  return known.map(([name, value, start]) => ({
    name,
    value,
    start: (start ?? 0) / widest,
    share: value / widest,
  }));
}

/** The tokens of a remit: from the caller's grant to what was given back. */
export function tokenBars({ tokens }: Detail["remit"]): Bar[] {
  const own = tokens.own ?? 0;
  return scaled([
    ["caller", tokens.caller],
    ["left", tokens.left_before],
    ["granted", tokens.granted],
    ["own", tokens.own],
    ["below", tokens.below > 0 ? tokens.below : null, own],
    ["back", tokens.given_back, own + tokens.below],
  ]);
}

/** The money of a remit likewise; it is shared with the caller unless somebody set an amount. */
export function moneyBars({ cost }: Detail["remit"]): Bar[] {
  if (cost.granted === null && !cost.used && !cost.below) return [];
  return scaled([
    ["caller", cost.caller],
    ["granted", cost.granted],
    ["own", cost.own],
    ["below", cost.below > 0 ? cost.below : null, cost.own ?? 0],
  ]);
}

/** The time of a remit likewise. */
export function timeBars({ time_ms: time }: Detail["remit"]): Bar[] {
  return scaled([
    ["caller", time.caller],
    ["left", time.left_before],
    ["granted", time.granted],
    ["queued", time.queued > 0 ? time.queued : null],
    ["used", time.used],
  ]);
}

const TONES: Record<string, Tone> = {
  allow: "good",
  rewrite: "busy",
  ask: "ask",
  refuse: "bad",
  failed: "bad",
  not_asked: "calm",
  unknown: "calm",
};

export const verdictTone = (verdict: string): Tone => TONES[verdict] ?? "calm";

/** Return whether anything was held back besides what nobody asked for. */
export function heldAnything({ held_back: held }: Detail): boolean {
  return [held.messages, held.redacted, held.tools, held.targets, held.parts].some((each) => each.length > 0);
}

/** Return whether the delegation may still change. */
export const isOpen = (detail: Detail): boolean => ["asking", "running", "waiting"].includes(detail.state);

/** Return the filter of a call as the settings that it names. */
export function filterLines(filter: Detail["held_back"]["filter"]): [string, string][] {
  if (!filter) return [];
  return Object.entries(filter).map(([name, value]) => [
    name,
    Array.isArray(value) ? value.join(", ") : String(value),
  ]);
}
