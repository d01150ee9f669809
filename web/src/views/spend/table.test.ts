import { expect, test } from "vitest";
import type { SpendRow } from "@/views/agents/figures";
import { periodIn, sinceOf, stepOf } from "./period";
import { csvOf, sorted, sortIn, sortName, turned } from "./table";

const row = (key: string, tokens: number, cost: number | null): SpendRow => ({
  key,
  tokens,
  cost,
  runs: 1,
  delegations: 2,
  succeeded: 2,
  failed: 0,
  cancelled: 0,
  refused: 0,
  prompt: tokens,
  completion: 0,
  cached: 0,
  total_tokens: tokens,
  overrun: 0,
  unpriced_tokens: 0,
  p50_ms: null,
  p95_ms: 20,
  codes: {},
});

const rows = [row("a", 5, 0.1), row("b", 50, null), row("c", 20, 0.2)];
const keys = (found: SpendRow[]) => found.map((each) => each.key).join("");

test("rows are sorted by any column, and what is unknown comes last", () => {
  expect(keys(sorted(rows, { column: "tokens", down: true }))).toBe("bca");
  expect(keys(sorted(rows, { column: "tokens", down: false }))).toBe("acb");
  expect(keys(sorted(rows, { column: "cost", down: true }))).toBe("cab");
  expect(keys(sorted(rows, { column: "cost", down: false }))).toBe("acb");
  expect(keys(sorted(rows, { column: "key", down: true }))).toBe("cba");
  expect(keys(sorted(rows, { column: "runs", down: true }))).toBe("abc");
});

test("the order stands in the address, and a click turns it", () => {
  expect(sortIn("-cost", "agent")).toEqual({ column: "cost", down: true });
  expect(sortIn("key", "day")).toEqual({ column: "key", down: false });
  expect(sortIn("nonsense", "agent")).toEqual({ column: "tokens", down: true });
  expect(sortIn(null, "day")).toEqual({ column: "key", down: true });
  expect(sortName(turned({ column: "cost", down: true }, "cost"))).toBe("cost");
  expect(sortName(turned({ column: "cost", down: true }, "runs"))).toBe("-runs");
  expect(sortName(turned({ column: "cost", down: true }, "key"))).toBe("key");
});

test("a file for spreadsheets quotes what must be, and no name becomes a formula", () => {
  const lines = csvOf([row('=1+1,"x"', 5, null), row("plain", 3, 0.25)], "user", "EUR").split("\r\n");
  expect(lines[0]).toMatch(/^user,runs,.*,cost_estimate_eur,/);
  expect(lines[1]).toBe(`"'=1+1,""x""",1,2,2,0,0,0,5,0,0,5,5,0,,0,,20`);
  expect(lines[2]).toBe("plain,1,2,2,0,0,0,3,0,0,3,3,0,0.25,0,,20");
  expect(lines[3]).toBe("");
});

test("a period is read from the address, and what is wrong there is left out", () => {
  expect(periodIn(new URLSearchParams(""), "30").days).toBe("30");
  expect(periodIn(new URLSearchParams("days=7"), "30").days).toBe("7");
  expect(periodIn(new URLSearchParams("days=8000"), "30").days).toBe("30");
  expect(periodIn(new URLSearchParams("from=2026-11-01&to=x"), "30")).toEqual({
    days: "",
    from: "2026-11-01",
    to: "",
  });
});

test("a period begins at a whole hour and ends with its last day", () => {
  const now = Date.parse("2026-11-17T09:30:00Z");
  expect(sinceOf({ days: "1", from: "", to: "" }, now)).toEqual({
    since_ms: Date.parse("2026-11-16T09:00:00Z"),
  });
  expect(sinceOf({ days: "", from: "2026-11-01", to: "2026-11-02" }, now)).toEqual({
    since_ms: Date.parse("2026-11-01T00:00:00Z"),
    until_ms: Date.parse("2026-11-03T00:00:00Z"),
  });
  expect(sinceOf({ days: "", from: "", to: "2026-11-02" }, now).since_ms).toBe(0);
  expect([stepOf({ days: "7", from: "", to: "" }), stepOf({ days: "30", from: "", to: "" })]).toEqual([
    "hour",
    "day",
  ]);
});
