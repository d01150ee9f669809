import { describe, expect, it } from "vitest";
import { sampleRows } from "@/views/run/samples";
import {
  ancestorsOf,
  barOf,
  childrenOf,
  endOf,
  fullPath,
  linesOf,
  merged,
  parentOf,
  ROOT,
  rowAt,
  rowsOf,
  search,
  shortPath,
  type Shown,
  ticksOf,
  troubleIn,
} from "@/views/run/model";

const ALL: Shown = { collapsed: new Set(), failedFirst: false, search: null, until: null };
const words = () => "";

const rows = sampleRows([
  { path: ROOT, agent: "boss", objective: "File my papers", took: 100, own: 40, tokens: 60, ownTokens: 10 },
  { path: "1", agent: "clerk", objective: "Sort receipts", started: 10, took: 30, tokens: 20 },
  { path: "1.1", agent: "reader", objective: "Read page 7", started: 15, took: 10, tokens: 5 },
  { path: "2", agent: "clerk", objective: "Sort letters", started: 40, took: 30, tokens: 30 },
  { path: "2.1", agent: "reader", state: "failed", code: "TIMEOUT", started: 45, took: 20 },
  { path: "/other.3", parent: "2", agent: "elsewhere", started: 50, took: 5 },
]);
const children = childrenOf(rows.values());
const shown = (options: Partial<Shown>) =>
  linesOf(rows, children, { ...ALL, ...options }).map((line) => line.row.path);

describe("the tree of a run", () => {
  it("is read from columns, with names by their number", () => {
    const [first, second] = rowsOf({
      names: ["user", "boss", "success", "clerk", "failed", "TIMEOUT"],
      path: ["", "1"],
      parents: {},
      agent: [1, 3],
      origin: [0, 1],
      capability: [-1, -1],
      objective: ["all", "part"],
      state: [2, 4],
      code: [-1, 5],
      note: ["", "too late"],
      started: [0, 5],
      took: [10, 5],
      own: [5, 5],
      tokens: [9, 4],
      own_tokens: [5, 4],
      tools: [0, 2],
      cost: [],
      own_cost: [],
    });
    expect(first).toMatchObject({
      path: "",
      parent: null,
      agent: "boss",
      origin: "user",
      code: "",
      cost: null,
    });
    expect(second).toMatchObject({ path: "1", parent: "", state: "failed", code: "TIMEOUT", tools: 2 });
  });

  it("knows parents from paths, and full paths from short ones", () => {
    expect(["", "3", "3.1", "step.2.x"].map(parentOf)).toEqual([null, "", "3", "step.2"]);
    for (const path of ["", "2.1", "/other.3"]) expect(shortPath("run", fullPath("run", path))).toBe(path);
    expect(fullPath("run", "2.1")).toBe("run.2.1");
  });

  it("shows every delegation below its caller, with its place among its siblings", () => {
    const lines = linesOf(rows, children, ALL);
    expect(
      lines.map((line) => [line.row.path, line.level, line.place, line.siblings, line.expanded]),
    ).toEqual([
      ["", 1, 1, 1, true],
      ["1", 2, 1, 2, true],
      ["1.1", 3, 1, 1, undefined],
      ["2", 2, 2, 2, true],
      ["2.1", 3, 1, 2, undefined],
      ["/other.3", 3, 2, 2, undefined],
    ]);
  });

  it("hides what is below a collapsed one", () => {
    expect(shown({ collapsed: new Set(["2"]) })).toEqual(["", "1", "1.1", "2"]);
    expect(shown({ collapsed: new Set([""]) })).toEqual([""]);
  });

  it("keeps the ancestors of what is searched for, whatever is collapsed", () => {
    const found = search(rows, "READ pag", words);
    expect([...(found?.hits ?? [])]).toEqual(["1.1"]);
    expect(shown({ search: found, collapsed: new Set(["", "1"]) })).toEqual(["", "1", "1.1"]);
    expect(search(rows, "  ", words)).toBeNull();
    expect(search(rows, "nothing like it", words)?.hits.size).toBe(0);
    expect([...(search(rows, "timeout", words)?.hits ?? [])]).toEqual(["2.1"]);
    expect(search(rows, "timed", (row) => (row.state === "failed" ? "Timed out" : ""))?.hits.size).toBe(1);
  });

  it("puts what failed, and what it is below, first", () => {
    expect([...troubleIn(rows)].sort()).toEqual([
      ["", 1],
      ["2", 1],
      ["2.1", 1],
    ]);
    expect(shown({ failedFirst: true })).toEqual(["", "2", "2.1", "/other.3", "1", "1.1"]);
  });

  it("finds the way up, also from a part that another hub executed", () => {
    expect(ancestorsOf(rows, "/other.3")).toEqual(["2", ""]);
    expect(ancestorsOf(rows, "")).toEqual([]);
  });

  it("takes changes without touching the rest", () => {
    const changed = sampleRows([{ path: "2", agent: "clerk", state: "cancelled" }]);
    const after = merged(rows, [...changed.values()]);
    expect(after.get("2")?.state).toBe("cancelled");
    expect(after.get("1")).toBe(rows.get("1"));
    expect([...after.keys()]).toEqual([...rows.keys()]);
    expect(merged(rows, [])).toBe(rows);
  });

  it("shows ten thousand delegations and a chain of as many", () => {
    const wide = sampleRows([
      { path: ROOT },
      ...Array.from({ length: 10_000 }, (_, n) => ({ path: `${n}`, agent: `agent ${n % 7}` })),
    ]);
    expect(linesOf(wide, childrenOf(wide.values()), { ...ALL, failedFirst: true })).toHaveLength(10_001);
    const deep = sampleRows(
      Array.from({ length: 300 }, (_, n) => ({ path: Array.from({ length: n }, () => "1").join(".") })),
    );
    expect(linesOf(deep, childrenOf(deep.values()), ALL)).toHaveLength(300);
  });
});

describe("the time axis", () => {
  it("places bars by their share of the whole run", () => {
    const row = rows.get("2");
    expect(row && barOf({ ...row, own: 15 }, 100)).toEqual({ left: 40, width: 30, own: 0.5 });
    expect(row && barOf({ ...row, took: 500 }, 100)).toMatchObject({ left: 40, width: 60 });
    const [short] = sampleRows([{ path: ROOT }]).values();
    expect(short && barOf(short, 1)).toEqual({ left: 0, width: 0, own: 1 });
  });

  it("ends where the last delegation ends, and moves on while one is at work", () => {
    expect(endOf(rows.values(), 1_000)).toBe(100);
    expect(endOf([], 0)).toBe(1);
    const going = sampleRows([{ path: ROOT, state: "running", took: 50 }]);
    expect(endOf(going.values(), 25)).toBe(75);
  });

  it("has round ticks", () => {
    expect(ticksOf(100, 5)).toEqual([0, 20, 40, 60, 80]);
    expect(ticksOf(7_300, 4)).toEqual([0, 2_000, 4_000, 6_000]);
    expect(ticksOf(6_200, 4)).toEqual([0, 2_000, 4_000]);
    expect(ticksOf(1, 5)).toEqual([0]);
  });
});

describe("playing a run back", () => {
  const at = (path: string, until: number) => {
    const row = rows.get(path);
    if (!row) throw new Error(path);
    return rowAt(row, until, 0);
  };

  it("shows what had begun, and how far it was", () => {
    expect(shown({ until: 42 })).toEqual(["", "1", "1.1", "2"]);
    expect(shown({ until: 0 })).toEqual([""]);
    expect(at("1", 20)).toMatchObject({ state: "running", took: 10, tokens: 0 });
    expect(at("1", 40)).toMatchObject({ state: "success", took: 30, tokens: 20 });
    expect(at("2.1", 50)).toMatchObject({ state: "running", code: "" });
    expect(at("2.1", 70)).toMatchObject({ state: "failed", code: "TIMEOUT" });
    expect(at("2", 5)).toMatchObject({ state: "not begun", took: 0 });
  });

  it("lets those at work go on with the clock", () => {
    const [row] = sampleRows([{ path: ROOT, state: "running", took: 50, own: 20 }]).values();
    expect(row && rowAt(row, null, 30)).toMatchObject({ took: 80, own: 50 });
    const [waits] = sampleRows([{ path: ROOT, state: "waiting", took: 50, own: 20 }]).values();
    expect(waits && rowAt(waits, null, 30)).toMatchObject({ took: 80, own: 20 });
  });
});
