// Where agents and calls stand in the picture of who calls whom.

import type { CallEdge } from "./figures";

export const USER = "user";

export interface GraphNode {
  name: string;
  layer: number;
  x: number;
  y: number;
  calls: number;
  failed: number;
}

export interface GraphLine {
  edge: CallEdge;
  path: string;
  width: number;
}

export interface Graph {
  nodes: GraphNode[];
  lines: GraphLine[];
  width: number;
  height: number;
}

export const NODE = { width: 150, height: 40 };
const GAP = { x: 90, y: 18 };
const MARGIN = 12;
const SWEEPS = 4;

/** Lay out agents in columns: who is asked by users first, then whom those call. */
export function layout(agents: string[], edges: CallEdge[], showMay: boolean): Graph {
  // That a user may ask any agent says nothing.
  const shown = edges.filter((each) => each.calls > 0 || (showMay && each.origin !== USER));
  const names = [...new Set([...agents, ...shown.flatMap((each) => [each.origin, each.target])])];
  const layers = ordered(columns(names, shown), shown);
  const tallest = Math.max(1, ...layers.map((layer) => layer.length));
  const height = tallest * (NODE.height + GAP.y) - GAP.y + 2 * MARGIN;
  const places = new Map<string, GraphNode>();
  layers.forEach((layer, column) => {
    const top = (height - (layer.length * (NODE.height + GAP.y) - GAP.y)) / 2;
    layer.forEach((name, row) => {
      const asked = shown.filter((each) => each.target === name);
      const made = shown.filter((each) => each.origin === name);
      const counted = name === USER || asked.length === 0 ? made : asked;
      places.set(name, {
        name,
        layer: column,
        x: MARGIN + column * (NODE.width + GAP.x),
        y: top + row * (NODE.height + GAP.y),
        calls: sum(counted, (each) => each.calls),
        failed: sum(counted, (each) => each.failed),
      });
    });
  });
  const most = Math.max(1, ...shown.map((each) => each.calls));
  const lines = shown.flatMap((edge) => {
    const [from, to] = [places.get(edge.origin), places.get(edge.target)];
    return from && to ? [{ edge, path: curve(from, to), width: widthOf(edge.calls, most) }] : [];
  });
  const width = 2 * MARGIN + layers.length * (NODE.width + GAP.x) - GAP.x + LOOP;
  return { nodes: [...places.values()], lines, width, height };
}

const sum = <T>(values: T[], of: (value: T) => number): number =>
  values.reduce((total, each) => total + of(each), 0);

/** Calls that never happened are thin; the most frequent ones are five pixels wide. */
export const widthOf = (calls: number, most: number): number =>
  calls === 0 ? 1 : 1 + (4 * Math.log1p(calls)) / Math.log1p(most);

/** Put each agent one column after the first agent that calls it. */
function columns(names: string[], edges: CallEdge[]): string[][] {
  const depth = new Map<string, number>();
  const visit = (starts: string[], at: number) => {
    let layer = starts.filter((name) => !depth.has(name));
    for (let level = at; layer.length; level += 1) {
      for (const name of layer) depth.set(name, level);
      const next = edges.filter((each) => layer.includes(each.origin)).map((each) => each.target);
      layer = [...new Set(next)].filter((name) => !depth.has(name));
    }
  };
  if (names.includes(USER)) visit([USER], 0);
  const first = names.includes(USER) ? 1 : 0;
  const called = new Set(edges.filter((each) => each.origin !== each.target).map((each) => each.target));
  visit(
    names.filter((name) => !called.has(name)),
    first,
  );
  visit(names, first); // what is left calls itself in circles
  const found: string[][] = [];
  for (const name of names) (found[depth.get(name) ?? first] ??= []).push(name);
  return Array.from(found, (layer: string[] | undefined) => layer ?? []);
}

/** Order each column by where its callers and callees stand, so that fewer lines cross. */
function ordered(layers: string[][], edges: CallEdge[]): string[][] {
  const order = new Map<string, number>();
  const note = (layer: string[]) =>
    layer.forEach((name, row) => order.set(name, row - (layer.length - 1) / 2));
  const found = layers.map((layer) => [...layer].sort());
  found.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of sweep % 2 ? [...found].reverse() : found) {
      const middle = new Map(layer.map((name) => [name, middleOf(name, edges, order)]));
      layer.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0) || a.localeCompare(b));
      note(layer);
    }
  }
  return found;
}

function middleOf(name: string, edges: CallEdge[], order: Map<string, number>): number {
  const near = edges.flatMap((each) =>
    each.origin === name ? [each.target] : each.target === name ? [each.origin] : [],
  );
  return near.length ? sum(near, (each) => order.get(each) ?? 0) / near.length : (order.get(name) ?? 0);
}

const LOOP = 36;

/** A line to a later column is a curve; one back, or within a column, goes around on the right. */
function curve(from: GraphNode, to: GraphNode): string {
  const [startX, startY] = [from.x + NODE.width, from.y + NODE.height / 2];
  const endY = to.y + NODE.height / 2;
  if (to.layer > from.layer) {
    const bend = (to.x - startX) / 2;
    return `M${startX},${startY} C${startX + bend},${startY} ${to.x - bend},${endY} ${to.x},${endY}`;
  }
  const endX = to.x + NODE.width;
  const out = Math.max(startX, endX) + LOOP;
  return `M${startX},${startY - 6} C${out},${startY - 6} ${out},${endY + 6} ${endX},${endY + 6}`;
}
