// What a row of the record says, in one line.

import type { components } from "@/api/operator";
import type { Tone } from "@/look/format";
import { texts } from "@/texts";

export type RecordLine = components["schemas"]["RecordLine"];

type Body = Record<string, unknown>;

const words = texts.audit.said;
const LONGEST = 300;

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const part = (value: unknown): Body => (typeof value === "object" && value !== null ? (value as Body) : {});

/** A value as people read it: texts as they are, structures as JSON. */
export function shown(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The agent that a row is about; empty if it is about none. */
export function agentOf(record: RecordLine): string {
  const body = part(record.body);
  return text(body.target) || text(body.agent) || text(part(body.request).target) || text(body.profile);
}

/** What happened, in one line. */
export function sentenceOf(record: RecordLine): string {
  return sentence(record.kind, part(record.body)).replace(/\s+/g, " ").slice(0, LONGEST);
}

function sentence(kind: string, body: Body): string {
  switch (kind) {
    case "started":
    case "delegation":
      return words.asks(text(body.origin), text(body.target), text(body.objective) || shown(body.input));
    case "result":
      return shown(body.result) || text(part(body.fault).message);
    case "refused":
      return text(part(part(body.response).fault).message);
    case "tool": {
      const why = text(part(body.fault).message);
      return why ? words.wantsTool(text(body.tool), why) : words.uses(text(body.tool));
    }
    case "approval":
      if (body.agreed === undefined || body.agreed === null) return words.asked(text(body.question));
      return body.agreed === true
        ? words.agreed(text(body.by))
        : words.declined(text(body.by), text(body.reason));
    case "shared":
      return words.shared(text(body.event), text(body.device));
    case "break":
      return words.broken(text(body.text));
    case "removed":
      return words.removed(text(body.rule));
    default:
      return text(body.text);
  }
}

/** The tone of a row: what did not succeed stands out. */
export function toneOfRow(record: RecordLine): Tone {
  const body = part(record.body);
  switch (record.kind) {
    case "result":
      return STATUSES[text(body.status)] ?? "calm";
    case "refused":
    case "break":
      return "bad";
    case "notice":
      return body.code ? "warn" : "calm";
    case "tool":
      return body.fault ? "bad" : "calm";
    case "approval":
      return "ask";
    default:
      return "calm";
  }
}

const STATUSES: Record<string, Tone> = {
  success: "good",
  partial: "warn",
  timeout: "warn",
  failed: "bad",
  refused: "bad",
};

/** The code that a row gives for what went wrong; empty if nothing did. */
export function codeOf(record: RecordLine): string {
  const body = part(record.body);
  return text(body.code) || text(part(body.fault).code) || text(part(part(body.response).fault).code);
}

/** The address of the page about the run of a row; null for rows that belong to none. */
export function runPath(record: RecordLine): string | null {
  return NO_RUNS.has(record.run) ? null : `/runs/${encodeURIComponent(record.run)}`;
}

// Rows of the store itself and of refused requests have no run.
const NO_RUNS = new Set(["door", "remit-store", ""]);
