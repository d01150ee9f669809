// The delegations of a run as a tree: read from columns, merged with what changed, searched, and played back.

import type { components } from "@/api/operator";

export type RunLine = components["schemas"]["RunLine"];
export type RunTable = components["schemas"]["RunTable"];
type Sent = RunTable["delegations"];
/** What is empty is not sent. */
type Columns = Omit<Sent, "parents" | "cost" | "own_cost"> &
  Partial<Pick<Sent, "parents" | "cost" | "own_cost">>;

/** One delegation. Times are milliseconds from the start of the run. */
export interface Row {
  path: string;
  parent: string | null;
  agent: string;
  origin: string;
  capability: string;
  objective: string;
  state: string;
  code: string;
  note: string;
  started: number;
  took: number;
  own: number;
  tokens: number;
  ownTokens: number;
  tools: number;
  cost: number | null;
  ownCost: number | null;
}

/** All delegations of a run by path, a parent before its children. */
export type Rows = Map<string, Row>;

export const ROOT = "";
const GOING = new Set(["waiting", "running", "asking"]);
const WRONG = new Set(["failed", "timeout", "refused", "cancelled"]);

export const isGoing = (row: Row): boolean => GOING.has(row.state);
export const isWrong = (row: Row): boolean => WRONG.has(row.state);
export const hasCosts = (rows: Rows): boolean => rows.get(ROOT)?.cost != null;

/** The path of a parent, unless the server names another. */
export function parentOf(path: string): string | null {
  if (path === ROOT) return null;
  const dot = path.lastIndexOf(".");
  return dot < 0 ? ROOT : path.slice(0, dot);
}

/** Return the delegations in the columns of the server. */
export function rowsOf(columns: Columns): Row[] {
  const name = (place: number | undefined): string =>
    place === undefined || place < 0 ? "" : (columns.names[place] ?? "");
  return columns.path.map((path, i) => ({
    path,
    parent: columns.parents?.[path] ?? parentOf(path),
    agent: name(columns.agent[i]),
    origin: name(columns.origin[i]),
    capability: name(columns.capability[i]),
    objective: columns.objective[i] ?? "",
    state: name(columns.state[i]),
    code: name(columns.code[i]),
    note: columns.note[i] ?? "",
    started: columns.started[i] ?? 0,
    took: columns.took[i] ?? 0,
    own: columns.own[i] ?? 0,
    tokens: columns.tokens[i] ?? 0,
    ownTokens: columns.own_tokens[i] ?? 0,
    tools: columns.tools[i] ?? 0,
    cost: columns.cost?.[i] ?? null,
    ownCost: columns.own_cost?.[i] ?? null,
  }));
}

/** Return the known delegations with those that changed; unchanged ones stay the same objects. */
export function merged(known: Rows, changed: Row[]): Rows {
  if (changed.length === 0) return known;
  const rows = new Map(known);
  for (const row of changed) rows.set(row.path, row);
  return rows;
}

/** The id of a delegation everywhere else: with the id of its run. */
export function fullPath(run: string, path: string): string {
  if (path === ROOT) return run;
  return path.startsWith("/") ? path.slice(1) : `${run}.${path}`;
}

/** The path in the tree of *run* of a delegation with that id. */
export function shortPath(run: string, full: string): string {
  if (full === run || full === "") return ROOT;
  return full.startsWith(`${run}.`) ? full.slice(run.length + 1) : `/${full}`;
}

/** The run that executes a delegation: another one if another hub took it. */
export const runOfPath = (full: string): string => full.split(".", 1)[0] ?? full;

export type Children = Map<string, Row[]>;

/** Return the children of each delegation in the order of the calls. */
export function childrenOf(rows: Iterable<Row>): Children {
  const children: Children = new Map();
  for (const row of rows) {
    if (row.parent === null) continue;
    const siblings = children.get(row.parent);
    if (siblings) siblings.push(row);
    else children.set(row.parent, [row]);
  }
  return children;
}

/** Return how many below each delegation did not succeed, itself included. */
export function troubleIn(rows: Rows): Map<string, number> {
  const trouble = new Map<string, number>();
  for (const row of [...rows.values()].reverse()) {
    const here = (trouble.get(row.path) ?? 0) + (isWrong(row) ? 1 : 0);
    if (here === 0) continue;
    trouble.set(row.path, here);
    if (row.parent !== null) trouble.set(row.parent, (trouble.get(row.parent) ?? 0) + here);
  }
  return trouble;
}

/** Return the paths above a delegation, the root last. */
export function ancestorsOf(rows: Rows, path: string): string[] {
  const found: string[] = [];
  for (let above = rows.get(path)?.parent ?? null; above !== null; above = rows.get(above)?.parent ?? null)
    found.push(above);
  return found;
}

export interface Search {
  hits: Set<string>;
  /** The hits and everything above them. */
  shown: Set<string>;
}

/** Find delegations whose agent, objective, state, code, note or path contains every word. */
export function search(rows: Rows, text: string, words: (row: Row) => string): Search | null {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return null;
  const found: Search = { hits: new Set(), shown: new Set() };
  for (const row of rows.values()) {
    const said =
      `${row.agent} ${row.objective} ${row.capability} ${row.state} ${words(row)} ${row.code} ${row.note} ${row.path}`.toLowerCase();
    if (!wanted.every((word) => said.includes(word))) continue;
    found.hits.add(row.path);
    for (let path: string | null = row.path; path !== null && !found.shown.has(path);) {
      found.shown.add(path);
      path = rows.get(path)?.parent ?? null;
    }
  }
  return found;
}

/** One line of the tree as it is shown. */
export interface Line {
  row: Row;
  level: number;
  place: number;
  siblings: number;
  /** Undefined: it has no children to show. */
  expanded: boolean | undefined;
}

export interface Shown {
  collapsed: ReadonlySet<string>;
  failedFirst: boolean;
  search: Search | null;
  /** Milliseconds from the start of the run up to which it is played back; null: as it is now. */
  until: number | null;
}

/** Return the lines of the tree in order. An explicit stack, because a tree may be deep. */
export function linesOf(rows: Rows, children: Children, shown: Shown): Line[] {
  const root = rows.get(ROOT);
  if (!root) return [];
  const trouble = shown.failedFirst ? troubleIn(rows) : null;
  const lines: Line[] = [];
  const waiting: Line[] = [{ row: root, level: 1, place: 1, siblings: 1, expanded: undefined }];
  for (let line = waiting.pop(); line; line = waiting.pop()) {
    const { path } = line.row;
    let below = (children.get(path) ?? []).filter(
      (each) =>
        (!shown.search || shown.search.shown.has(each.path)) &&
        (shown.until === null || each.started <= shown.until),
    );
    if (trouble)
      below = [...below].sort((a, b) => (trouble.has(b.path) ? 1 : 0) - (trouble.has(a.path) ? 1 : 0));
    // What is searched for is shown, wherever it is.
    const expanded = below.length === 0 ? undefined : shown.search !== null || !shown.collapsed.has(path);
    lines.push({ ...line, expanded });
    if (!expanded) continue;
    for (let i = below.length - 1; i >= 0; i--) {
      const row = below[i];
      if (row)
        waiting.push({
          row,
          level: line.level + 1,
          place: i + 1,
          siblings: below.length,
          expanded: undefined,
        });
    }
  }
  return lines;
}

/** Return the end of the run so far, in milliseconds from its start; never 0. */
export function endOf(rows: Iterable<Row>, sinceMs: number): number {
  let end = 1;
  for (const row of rows) end = Math.max(end, row.started + (isGoing(row) ? row.took + sinceMs : row.took));
  return end;
}

/** Return a delegation as it was at a time: begun or not, still at work or ended. */
export function rowAt(row: Row, until: number | null, sinceMs: number): Row {
  if (until === null) {
    if (!isGoing(row) || sinceMs <= 0) return row;
    const own = row.state === "running" ? row.own + sinceMs : row.own;
    return { ...row, took: row.took + sinceMs, own };
  }
  const took = until - row.started;
  if (took < 0)
    return { ...row, state: "not begun", took: 0, own: 0, tokens: 0, ownTokens: 0, code: "", note: "" };
  if (took >= row.took && !isGoing(row)) return row;
  const cost = row.cost === null ? null : 0;
  return {
    ...row,
    state: "running",
    took,
    own: Math.min(row.own, took),
    tokens: 0,
    ownTokens: 0,
    cost,
    ownCost: cost,
    code: "",
    note: "",
  };
}

/** Return round times for the axis, at most *most* of them, and none so far right that its text would not fit. */
export function ticksOf(span: number, most: number): number[] {
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const whole = Math.max(1, step);
  return Array.from({ length: Math.floor(span / whole) + 1 }, (_, i) => i * whole).filter(
    (each) => each <= span * 0.88,
  );
}

export interface Bar {
  left: number;
  width: number;
  /** The share of the bar in which it did not wait for others. */
  own: number;
}

/** Return where a delegation stands on the time axis, in percent of its width. */
export function barOf(row: Row, span: number): Bar {
  const left = Math.min(100, (row.started / span) * 100);
  const width = Math.min(100 - left, (row.took / span) * 100);
  return { left, width, own: row.took > 0 ? Math.min(1, row.own / row.took) : 1 };
}
