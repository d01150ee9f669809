// What differs between two runs, delegation by delegation.

import { type Row, type Rows } from "@/views/run/model";

export type Change = "same" | "changed" | "added" | "removed";

/** A delegation of the first run, of the second, or of both. */
export interface Pair {
  first: Row | null;
  second: Row | null;
  change: Change;
}

// Two runs never take exactly the same time: less than this, or less than a tenth, is the same.
const SAME_MS = 50;
const SAME_SHARE = 0.1;

/** Return the delegations of both runs, matched by path and agent, else by agent and objective. */
export function pairsOf(first: Rows, second: Rows): Pair[] {
  const left = new Map(second);
  const partners = new Map<string, Row>();
  for (const row of first.values()) {
    const other = second.get(row.path);
    if (other?.agent === row.agent && sameTask(row, other)) take(row, other);
  }
  const tasks = new Map<string, Row[]>();
  for (const row of [...left.values()].reverse()) {
    const same = tasks.get(taskOf(row));
    if (same) same.push(row);
    else tasks.set(taskOf(row), [row]);
  }
  for (const row of first.values()) {
    const other = partners.has(row.path) ? undefined : tasks.get(taskOf(row))?.pop();
    if (other) take(row, other);
  }
  // What is asked in other words at the same place is still the same call.
  for (const row of first.values()) {
    const other = left.get(row.path);
    if (!partners.has(row.path) && other?.agent === row.agent) take(row, other);
  }
  function take(row: Row, other: Row) {
    partners.set(row.path, other);
    left.delete(other.path);
  }
  const pairs = [...first.values()].map((row): Pair => {
    const partner = partners.get(row.path) ?? null;
    const change = partner === null ? "removed" : differ(row, partner) ? "changed" : "same";
    return { first: row, second: partner, change };
  });
  // What the second run adds stands after the delegation that asked for it.
  return inserted(pairs, [...left.values()]);
}

function inserted(pairs: Pair[], added: Row[]): Pair[] {
  const below = new Map<string, Pair[]>();
  for (const row of added) {
    const pair: Pair = { first: null, second: row, change: "added" };
    const siblings = below.get(row.parent ?? "");
    if (siblings) siblings.push(pair);
    else below.set(row.parent ?? "", [pair]);
  }
  const found: Pair[] = [];
  const put = (pair: Pair) => {
    found.push(pair);
    const path = pair.second?.path;
    if (path === undefined) return;
    const more = below.get(path) ?? [];
    below.delete(path);
    more.forEach(put);
  };
  pairs.forEach(put);
  for (const rest of below.values()) found.push(...rest);
  return found;
}

const taskOf = (row: Row): string => JSON.stringify([row.agent, row.objective]);
const sameTask = (one: Row, other: Row): boolean => one.objective === other.objective;

function differ(one: Row, other: Row): boolean {
  return (
    one.state !== other.state ||
    one.code !== other.code ||
    one.tokens !== other.tokens ||
    one.objective !== other.objective ||
    isFar(one.took, other.took)
  );
}

function isFar(one: number, other: number): boolean {
  const distance = Math.abs(one - other);
  return distance > SAME_MS && distance > SAME_SHARE * Math.max(one, other);
}

/** Return a difference with its sign, or an empty text if there is none. */
export function delta(one: number, other: number, show: (value: number) => string): string {
  if (one === other) return "";
  return `${other > one ? "+" : "−"}${show(Math.abs(other - one))}`;
}
