// Places the steps of a workflow in layers, from left to right, so that few lines cross.

export interface Planned {
  name: string;
  after: string[];
}

export interface Layered {
  /** The names in each layer, from top to bottom: steps, and places where a long line passes between them. */
  rows: string[][];
  /** The lines, each with the names that it passes. Lines that others imply are left out. */
  lines: string[][];
}

// Each pass moves steps towards what they are connected with; more passes change nothing that is seen.
const PASSES = 8;

/** Return the places of steps. Steps that wait for each other, or for unknown ones, are placed all the same. */
export function layered(steps: Planned[]): Layered {
  const names = new Set(steps.map((step) => step.name));
  const before = new Map(
    steps.map((step) => [step.name, step.after.filter((each) => names.has(each) && each !== step.name)]),
  );
  const depth = depths(before);
  const count = Math.max(0, ...[...depth.values()].map((each) => each + 1));
  const rows: string[][] = Array.from({ length: count }, () => []);
  for (const step of steps) rows[depth.get(step.name) ?? 0]?.push(step.name);
  const lines = withoutImplied(before).map(([from, to]) => {
    const [start, end] = [depth.get(from) ?? 0, depth.get(to) ?? 0];
    const passed: string[] = [];
    for (let layer = start + 1; layer < end; layer += 1) {
      const name = `${from}${BETWEEN}${to}${BETWEEN}${layer}`;
      rows[layer]?.push(name);
      passed.push(name);
    }
    return [from, ...passed, to];
  });
  const edges = lines.flatMap((line) =>
    line.slice(1).map((to, at): [string, string] => [line[at] ?? to, to]),
  );
  for (let pass = 0; pass < PASSES; pass += 1) untangle(rows, edges, pass % 2 === 0);
  return { rows, lines };
}

// No step has it in its name.
const BETWEEN = " ";

/** Whether a name stands for a place that a line passes. */
export const isPassage = (name: string): boolean => name.includes(BETWEEN);

/** The longest way to each step from a step that waits for none. */
function depths(before: Map<string, string[]>): Map<string, number> {
  const found = new Map<string, number>();
  const open = new Set<string>();
  const depth = (name: string): number => {
    const known = found.get(name);
    if (known !== undefined) return known;
    if (open.has(name)) return 0; // a circle, which no valid plan has
    open.add(name);
    const above = (before.get(name) ?? []).map((each) => depth(each) + 1);
    const value = Math.max(0, ...above);
    open.delete(name);
    found.set(name, value);
    return value;
  };
  for (const name of before.keys()) depth(name);
  return found;
}

/** Leave out a line from a to c where lines from a to b and from b to c say the same. */
function withoutImplied(before: Map<string, string[]>): [string, string][] {
  const ancestors = new Map<string, Set<string>>();
  const all = (name: string): Set<string> => {
    const known = ancestors.get(name);
    if (known) return known;
    const found = new Set<string>();
    ancestors.set(name, found);
    for (const each of before.get(name) ?? []) {
      found.add(each);
      for (const further of all(each)) found.add(further);
    }
    return found;
  };
  const edges: [string, string][] = [];
  for (const [name, above] of before) {
    for (const each of above) {
      if (!above.some((other) => other !== each && all(other).has(each))) edges.push([each, name]);
    }
  }
  return edges;
}

/** Order each layer by the middle of what its steps are connected with in the layer before, or after. */
function untangle(rows: string[][], edges: [string, string][], forwards: boolean): void {
  const near = new Map<string, string[]>();
  for (const [from, to] of edges) {
    const [moved, fixed] = forwards ? [to, from] : [from, to];
    near.set(moved, [...(near.get(moved) ?? []), fixed]);
  }
  const place = new Map<string, number>();
  const note = (row: string[]) => {
    row.forEach((name, at) => place.set(name, (at + 0.5) / row.length));
  };
  rows.forEach(note);
  const order = forwards ? rows : [...rows].reverse();
  for (const row of order) {
    const middle = new Map(
      row.map((name) => {
        const others = (near.get(name) ?? []).map((each) => place.get(each) ?? 0.5);
        const own = place.get(name) ?? 0.5;
        return [name, others.length ? others.reduce((sum, each) => sum + each, 0) / others.length : own];
      }),
    );
    row.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0));
    note(row);
  }
}

export interface Box {
  x: number;
  y: number;
}

export const SIZE = { width: 184, height: 66, passage: 6, across: 52, down: 18, edge: 12 };

const tall = (name: string): number => (isPassage(name) ? SIZE.passage : SIZE.height);

/** Return where each name stands, each layer in the middle, and how large the picture is. */
export function boxes({ rows }: Layered): { at: Map<string, Box>; width: number; height: number } {
  const { width, across, down, edge } = SIZE;
  const heights = rows.map((row) => row.reduce((sum, name) => sum + tall(name) + down, -down));
  const highest = Math.max(0, ...heights);
  const at = new Map<string, Box>();
  rows.forEach((row, layer) => {
    let y = edge + (highest - (heights[layer] ?? 0)) / 2;
    for (const name of row) {
      at.set(name, { x: edge + layer * (width + across), y });
      y += tall(name) + down;
    }
  });
  return {
    at,
    width: Math.max(0, rows.length * (width + across) - across) + 2 * edge,
    height: highest + 2 * edge,
  };
}

/** Return a line through the boxes and passages of these names, from the right side of the first. */
export function line(names: string[], at: Map<string, Box>): string {
  const drawn: string[] = [];
  names.forEach((name, place) => {
    const box = at.get(name) ?? { x: 0, y: 0 };
    const y = box.y + tall(name) / 2;
    const end = box.x + SIZE.width;
    if (place > 0) {
      const from = at.get(names[place - 1] ?? "") ?? box;
      const fromY = from.y + tall(names[place - 1] ?? "") / 2;
      const middle = box.x - SIZE.across / 2;
      drawn.push(`C ${middle} ${fromY}, ${middle} ${y}, ${box.x} ${y}`);
      if (place < names.length - 1) drawn.push(`H ${end}`);
    } else drawn.push(`M ${end} ${y}`);
  });
  return drawn.join(" ");
}
