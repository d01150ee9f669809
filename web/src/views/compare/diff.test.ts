import { describe, expect, it } from "vitest";
import { delta, pairsOf } from "@/views/compare/diff";
import { ROOT } from "@/views/run/model";
import { sampleRows } from "@/views/run/samples";

const shape = (pairs: ReturnType<typeof pairsOf>) =>
  pairs.map((pair) => [pair.first?.path ?? null, pair.second?.path ?? null, pair.change]);

describe("two runs side by side", () => {
  it("match by place, and differ in outcome, tokens and time", () => {
    const one = sampleRows([
      { path: ROOT, took: 1_000 },
      { path: "1", objective: "a", took: 100, tokens: 5 },
      { path: "2", objective: "b", took: 100 },
      { path: "3", objective: "c", took: 100 },
    ]);
    const two = sampleRows([
      { path: ROOT, took: 1_040 },
      { path: "1", objective: "a", took: 100, tokens: 6 },
      { path: "2", objective: "b", took: 100, state: "failed" },
      { path: "3", objective: "c", took: 900 },
    ]);
    expect(shape(pairsOf(one, two))).toEqual([
      ["", "", "same"],
      ["1", "1", "changed"],
      ["2", "2", "changed"],
      ["3", "3", "changed"],
    ]);
  });

  it("match by what was asked where the places moved, and tell what came and went", () => {
    const one = sampleRows([
      { path: ROOT },
      { path: "1", agent: "clerk", objective: "sort" },
      { path: "2", agent: "reader", objective: "read" },
      { path: "3", agent: "clerk", objective: "file" },
    ]);
    const two = sampleRows([
      { path: ROOT },
      { path: "1", agent: "reader", objective: "read" },
      { path: "1.1", agent: "helper", objective: "lift" },
      { path: "2", agent: "clerk", objective: "sort" },
    ]);
    expect(shape(pairsOf(one, two))).toEqual([
      ["", "", "same"],
      ["1", "2", "same"],
      ["2", "1", "same"],
      [null, "1.1", "added"],
      ["3", null, "removed"],
    ]);
  });

  it("take the same agent at the same place for the same call, though it was asked otherwise", () => {
    const one = sampleRows([{ path: ROOT, objective: "Sort March" }]);
    const two = sampleRows([{ path: ROOT, objective: "Sort April" }]);
    expect(shape(pairsOf(one, two))).toEqual([["", "", "changed"]]);
  });

  it("have every delegation once", () => {
    const one = sampleRows([
      { path: ROOT },
      ...Array.from({ length: 300 }, (_, n) => ({ path: `${n}`, objective: `${n % 7}` })),
    ]);
    const two = sampleRows([
      { path: ROOT },
      ...Array.from({ length: 250 }, (_, n) => ({ path: `${n + 40}`, objective: `${n % 5}` })),
    ]);
    const pairs = pairsOf(one, two);
    const firsts = pairs.flatMap((pair) => (pair.first ? [pair.first.path] : []));
    const seconds = pairs.flatMap((pair) => (pair.second ? [pair.second.path] : []));
    expect(new Set(firsts).size).toBe(one.size);
    expect(firsts).toHaveLength(one.size);
    expect(new Set(seconds).size).toBe(two.size);
    expect(seconds).toHaveLength(two.size);
  });

  it("tell differences with their sign", () => {
    expect([delta(5, 9, String), delta(9, 5, String), delta(5, 5, String)]).toEqual(["+4", "−4", ""]);
  });
});
