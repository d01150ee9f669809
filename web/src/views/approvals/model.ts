// What the inbox works out: which question is next, what was edited, what an answer says.

import type { components } from "@/api/operator";

type Schemas = components["schemas"];
export type ApprovalList = Schemas["ApprovalList"];
export type ShownQuestion = Schemas["ShownQuestion"];
export type RevealedQuestion = Schemas["RevealedQuestion"];
export type Waiting = Schemas["WaitingApproval"];
export type Answered = Schemas["AnsweredApproval"];
export type ApprovalDetail = Schemas["ApprovalDetail"];
export type Outcomes = Schemas["AnswerOutcomes"];
export type EditableField = "objective" | "input";

export const FIELDS: EditableField[] = ["objective", "input"];

/** Return the id of the question after or before one in a list; the first or last if it is not there. */
export function beside(ids: string[], id: string | null, step: 1 | -1): string | null {
  if (!ids.length) return null;
  const place = id === null ? -1 : ids.indexOf(id);
  if (place < 0) return (step > 0 ? ids[0] : ids.at(-1)) ?? null;
  return ids[Math.min(Math.max(place + step, 0), ids.length - 1)] ?? null;
}

/** Return which question to show once one is gone: the one that took its place, else the last. */
export function afterRemoval(before: string[], now: string[], id: string): string | null {
  const place = before.indexOf(id);
  return now[Math.min(Math.max(place, 0), now.length - 1)] ?? null;
}

/** The value of a field as a person edits it: texts as they are, everything else as JSON. */
export function editedText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** The same text as a value, or what is wrong with it. An input that was no text stays none. */
export function valueOf(
  field: EditableField,
  text: string,
  was: unknown,
): { value: unknown } | { wrong: "json" } {
  if (field === "objective" || typeof was === "string" || was === null || was === undefined) {
    return { value: text };
  }
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return { wrong: "json" };
  }
}

export type Drafts = Partial<Record<EditableField, string>>;

/** Return the edits that differ from the request, and the fields that cannot be read. */
export function editsOf(
  drafts: Drafts,
  request: Partial<Record<EditableField, unknown>>,
): { edits: Record<string, unknown>; wrong: EditableField[] } {
  const edits: Record<string, unknown> = {};
  const wrong: EditableField[] = [];
  for (const field of FIELDS) {
    const text = drafts[field];
    if (text === undefined || text === editedText(request[field])) continue;
    const read = valueOf(field, text, request[field]);
    if ("wrong" in read) wrong.push(field);
    else edits[field] = read.value;
  }
  return { edits, wrong };
}

/** Keep only the selected questions that still wait. */
export function stillThere(selected: ReadonlySet<string>, ids: string[]): Set<string> {
  return new Set(ids.filter((id) => selected.has(id)));
}

interface FormField {
  type?: string;
  title?: string;
  description?: string;
  enum?: string[];
  oneOf?: { const: string; title?: string }[];
  anyOf?: { const: string; title?: string }[];
  items?: FormField;
}

/** The fields of a form, each with what a person may enter: its description, and its type or choices. */
export function fieldsOf(form: object | null): [string, string][] {
  const fields = (form as { properties?: Record<string, FormField> } | null)?.properties ?? {};
  return Object.entries(fields).map(([name, field]) => {
    const listed = field.items ?? field;
    const titled = (listed.oneOf ?? listed.anyOf)?.map((each) =>
      each.title && each.title !== each.const ? `${each.const} (${each.title})` : each.const,
    );
    const what = (titled ?? listed.enum)?.join(", ") ?? field.type ?? "";
    return [name, [field.description ?? field.title, what].filter(Boolean).join(": ")];
  });
}
