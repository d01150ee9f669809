// Runs and entries for unit tests.

import type { Entry, Run } from "@/views/chat/store";

export const DAY = 86_400_000;

export function anEntry(number: number, changes: Partial<Entry> = {}): Entry {
  const role = changes.role ?? "local_agent";
  return {
    id: `r.e${number}`,
    role,
    text: `text ${number}`,
    turn: number,
    at_ms: number,
    took_ms: 5,
    label: role === "remote_agent" ? null : "auto_sent",
    reviews: [],
    original: "",
    written_by: { role, name: "mine", via: "" },
    edited_by: null,
    approved_by: null,
    rejected_by: null,
    reason: "",
    sent: true,
    delivery: null,
    failed: "",
    files: [],
    ...changes,
  };
}

export function aRun(changes: Partial<Run> = {}): Run {
  return {
    id: "r",
    profile: "mine",
    device: "d",
    agent: "helper",
    objective: "review this API",
    mode: "manual",
    state: "planning",
    decides: "agent",
    acts: [],
    turn: 0,
    max_turns: 8,
    active_ms: 0,
    is_active: false,
    max_duration_ms: 600_000,
    failures: 0,
    max_failures: 3,
    tokens: 0,
    max_tokens: null,
    limits: null,
    unread: 0,
    earlier: 0,
    timeline: [],
    rejected: [],
    kept: 0,
    kept_replies: [],
    draft: null,
    attached: [],
    questions: [],
    failure: "",
    ended: null,
    banner: "",
    result: "",
    ...changes,
  };
}
