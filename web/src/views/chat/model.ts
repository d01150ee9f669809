// The timeline, the list and the limits of conversations, made from what the device told.

import type { Tone } from "@/look/format";
import type { Entry, Line, Run } from "@/views/chat/store";

export const hasEnded = (run: Pick<Run, "state">): boolean =>
  run.state === "completed" || run.state === "stopped";

/** The number in the id of an entry, by which entries are ordered. */
export function numberOf(entry: Pick<Entry, "id">): number {
  return Number(entry.id.slice(entry.id.lastIndexOf(".e") + 2));
}

export interface Item {
  entry: Entry;
  /** Whether it is a reply that arrived while the run is paused, and that nobody has answered yet. */
  kept: boolean;
  /** Whether it is the first one of its day. */
  day: boolean;
}

const dayOf = (ms: number): string => new Date(ms).toDateString();

/** All entries that are known of a run, in their order: messages, rejected drafts and kept replies. */
export function timelineOf(run: Run, earlier: readonly Entry[] = []): Item[] {
  const entries = new Map<string, [Entry, boolean]>();
  for (const entry of earlier) entries.set(entry.id, [entry, false]);
  for (const entry of [...run.timeline, ...run.rejected]) entries.set(entry.id, [entry, false]);
  for (const entry of run.kept_replies) entries.set(entry.id, [entry, true]);
  const inOrder = [...entries.values()].sort(([one], [other]) => numberOf(one) - numberOf(other));
  let last = "";
  return inOrder.map(([entry, kept]) => {
    const day = dayOf(entry.at_ms);
    const first = day !== last;
    last = day;
    return { entry, kept, day: first };
  });
}

/** How many entries of others came after the one with this number. */
export const newerThan = (items: readonly Item[], number: number): number =>
  items.filter(({ entry }) => numberOf(entry) > number).length;

/** Whether a draft waits for a person. */
export const waits = (run: Run): boolean => run.draft !== null && !hasEnded(run);

/** How many decisions of a person a run waits for. */
export const waitingFor = (run: Run): number => (waits(run) ? 1 : 0) + run.questions.length;

/** A run as the list shows it. */
export function lineOf(run: Run): Line {
  const newest = run.timeline.at(-1);
  const { id, profile, device, agent, objective, mode, state, turn, unread, ended } = run;
  return {
    ...{ id, profile, device, agent, objective, mode, state, turn, unread, ended },
    waits: waits(run),
    questions: run.questions.length,
    at_ms: newest ? newest.at_ms : null,
  };
}

export type Doing =
  "asking" | "draft" | "yours" | "writing" | "sending" | "remote" | "paused" | "error" | "done" | "stopped";

/** What a conversation waits for. Without *decides* (in a list) the agent is taken to write. */
export function doing(line: Pick<Line, "state" | "waits" | "questions">, decides?: Run["decides"]): Doing {
  if (line.state === "completed") return "done";
  if (line.state === "stopped" || line.state === "paused" || line.state === "error") return line.state;
  if (line.questions > 0) return "asking";
  if (line.state === "ready_to_send") return line.waits ? "draft" : "sending";
  if (line.state === "waiting_remote") return "remote";
  return decides === "person" ? "yours" : "writing";
}

export const TONES: Record<Doing, Tone> = {
  asking: "ask",
  draft: "ask",
  yours: "ask",
  writing: "busy",
  sending: "busy",
  remote: "busy",
  paused: "warn",
  error: "bad",
  done: "good",
  stopped: "calm",
};

export type Label = NonNullable<Entry["label"]>;

export const LABEL_TONES: Record<Label, Tone> = {
  auto_sent: "busy",
  approved: "good",
  edited: "warn",
  yours: "calm",
  rejected: "bad",
};

/** The rules that asked for a review; what every draft of a mode or a state goes through is no rule. */
export const rulesOf = (reviews: Entry["reviews"]): Entry["reviews"] =>
  reviews.filter(({ rule }) => rule !== "manual");

/** Why the agent's turn ended before its draft was whole: in its words, or by whom. Empty while it goes on. */
export type Stop = { by: "failure"; why: string } | { by: "you" | "limit" | "none" } | null;

export function stopOf(run: Run): Stop {
  if (run.state === "error") return { by: "failure", why: run.failure };
  if (run.state === "stopped") return { by: run.ended === "user" ? "you" : "limit" };
  if (run.decides === "person") return { by: "you" };
  return null;
}

/** The share of a limit at which it is worth a word before it ends the run. */
const NEAR = 0.75;

export type LimitName = "turns" | "active_ms" | "tokens" | "failures";

/** The limits of a run that goes on and that are nearly reached. */
export function nearLimits(run: Run): LimitName[] {
  if (hasEnded(run) || run.limits === null) return [];
  const { limits } = run;
  const names: LimitName[] = ["turns", "active_ms", "tokens", "failures"];
  return names.filter((name) => {
    const { used, most } = limits[name];
    if (most === null) return false;
    return used >= (name === "failures" ? Math.max(most - 1, 1) : most * NEAR);
  });
}

/** The time that a run has worked, of which more passes while it is at work. */
export const activeMs = (run: Run, atMs: number, nowMs: number): number =>
  run.active_ms + (run.is_active ? Math.max(0, nowMs - atMs) : 0);
