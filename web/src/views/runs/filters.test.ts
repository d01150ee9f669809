import { describe, expect, it } from "vitest";
import {
  areEmpty,
  askedOf,
  filtersIn,
  freshened,
  NO_FILTERS,
  periodMs,
  queryOf,
  withSaved,
} from "@/views/runs/filters";

describe("the filters of the list", () => {
  it("are what the address says, in both directions", () => {
    const filters = { ...NO_FILTERS, q: "tea & milk", status: "failed,timeout", since: "1h" };
    expect(filtersIn(queryOf(filters))).toEqual(filters);
    expect(filtersIn("?q=a&unknown=1&user=")).toEqual({ ...NO_FILTERS, q: "a" });
    expect(queryOf(NO_FILTERS)).toBe("");
    expect(areEmpty(filtersIn(""))).toBe(true);
    expect(areEmpty(filters)).toBe(false);
  });

  it("ask the server for what is given, and for a period up to now", () => {
    const filters = { ...NO_FILTERS, q: "tea", since: "24h" };
    expect(askedOf(filters, 100 * 86_400_000 + 12_345)).toEqual({ q: "tea", since_ms: 99 * 86_400_000 });
    expect(askedOf(NO_FILTERS, 0)).toEqual({});
    expect(["15m", "7d", "", "7w", "x"].map(periodMs)).toEqual([900_000, 604_800_000, 0, 0, 0]);
  });

  it("are kept under a name, each name once", () => {
    const list = withSaved(withSaved([], { name: "a", query: "q=1" }), { name: "b", query: "q=2" });
    expect(withSaved(list, { name: "a", query: "q=3" })).toEqual([
      { name: "b", query: "q=2" },
      { name: "a", query: "q=3" },
    ]);
  });

  it("put fresh runs before the older ones, and change those that are known", () => {
    const known = [
      { run: "b", n: 1 },
      { run: "a", n: 1 },
    ];
    expect(
      freshened(known, [
        { run: "c", n: 2 },
        { run: "b", n: 2 },
      ]),
    ).toEqual([
      { run: "c", n: 2 },
      { run: "b", n: 2 },
      { run: "a", n: 1 },
    ]);
  });
});
