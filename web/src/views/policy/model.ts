// What the page of the policy works out: the question from the form, and two verdict lists beside each other.

import { ApiError } from "@/api/client";
import type { components } from "@/api/operator";

type Schemas = components["schemas"];
export type PolicyAnswer = Schemas["PolicyAnswer"];
export type Explanation = Schemas["Explanation"];
export type GuardVerdict = Schemas["GuardVerdict"];
export type TeamView = Schemas["TeamView"];
export type Guards = Schemas["Guards"];

export interface CallForm {
  from: string;
  to: string;
  capability: string;
  objective: string;
  input: string;
  user: string;
  tools: string;
  tokens: string;
  cost: string;
  deadline: string;
}

export const EMPTY: CallForm = {
  from: "user",
  to: "",
  capability: "",
  objective: "",
  input: "",
  user: "someone",
  tools: "",
  tokens: "",
  cost: "",
  deadline: "",
};

/** Return an input as the agent would get it: JSON if it is some, else the text itself. */
export function inputOf(text: string): unknown {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Return an amount in millionths, as the interface has it; null: it is none. */
const amount = (text: string): number | null =>
  /^\d+([.,]\d{1,6})?$/.test(text.trim()) ? Math.round(Number(text.replace(",", ".")) * 1_000_000) : null;

const number = (text: string): number | null => (/^\d+$/.test(text.trim()) ? Number(text) : null);

/** Return the question that a form asks; a draft counts only if there is one. */
export function questionOf(form: CallForm, draft: string | null): Schemas["PolicyQuestion"] {
  const tools = form.tools
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
  return {
    from: form.from.trim() || "user",
    to: form.to.trim(),
    objective: form.objective,
    capability: form.capability.trim() || null,
    input: inputOf(form.input),
    user: form.user.trim() || "someone",
    tools: tools.length ? tools : null,
    max_tokens: number(form.tokens),
    max_cost: amount(form.cost),
    deadline_ms: number(form.deadline),
    draft: draft?.trim() ? draft : null,
  };
}

/** The fields, or lines of a draft, that the server found wrong. */
export function problemsIn(error: unknown): { path: string; message: string }[] {
  const fault =
    error instanceof ApiError ? (error.fault as { problems?: { path: string; message: string }[] }) : {};
  return fault.problems ?? [];
}

export interface Row {
  guard: string;
  now: GuardVerdict | undefined;
  then: GuardVerdict | undefined;
  changed: boolean;
}

/** Return the verdicts of both, guard by guard, in the order in which they are asked. */
export function rowsOf({ now, draft, changed }: PolicyAnswer): Row[] {
  const other = draft?.explanation.guards ?? [];
  const names = new Set(changed.map((each) => each.guard));
  const order = other.length > now.guards.length ? other : now.guards;
  const missing = [...now.guards, ...other].filter(
    ({ guard }) => !order.some((each) => each.guard === guard),
  );
  return [...order, ...missing].map(({ guard }) => ({
    guard,
    now: now.guards.find((each) => each.guard === guard),
    then: other.find((each) => each.guard === guard),
    changed: names.has(guard),
  }));
}
