import { expect, test } from "vitest";
import { moneyBars, readable, splitTokens, timeBars, tokenBars, verdictTone } from "@/views/delegation/model";

test("a text is split at its redaction tokens, and at nothing that only looks like one", () => {
  expect(splitTokens("to [EMAIL:kqzwpnbtrlmx], [x:y] and [IBAN:bbbbbbbbbbbb]")).toEqual([
    { text: "to ", kind: "" },
    { text: "[EMAIL:kqzwpnbtrlmx]", kind: "EMAIL" },
    { text: ", [x:y] and ", kind: "" },
    { text: "[IBAN:bbbbbbbbbbbb]", kind: "IBAN" },
  ]);
  expect(splitTokens("")).toEqual([]);
});

test("a value is read as it was said, and structures are indented", () => {
  expect(readable("plain")).toBe("plain");
  expect(readable({ a: 1 })).toBe('{\n  "a": 1\n}');
  expect(readable(null)).toBe("");
});

const remit = {
  tokens: {
    caller: 1000,
    left_before: 800,
    granted: 500,
    used: 300,
    own: 100,
    below: 200,
    given_back: 200,
    overrun: 0,
  },
  time_ms: { caller: null, left_before: null, granted: 1000, used: 250, queued: 0, asked: 0 },
} as unknown as Parameters<typeof tokenBars>[0];

test("the bars of a grant stand on one scale, used beside given back", () => {
  const bars = tokenBars(remit);
  expect(bars.map(({ name, start, share }) => [name, start, share])).toEqual([
    ["caller", 0, 1],
    ["left", 0, 0.8],
    ["granted", 0, 0.5],
    ["own", 0, 0.1],
    ["below", 0.1, 0.2],
    ["back", 0.3, 0.2],
  ]);
});

test("money has bars where it is limited or spent", () => {
  const none = { caller: null, granted: null, used: 0, own: 0, below: 0, unpriced: 90 };
  const with_cost = (cost: object) => moneyBars({ ...remit, cost: { ...none, ...cost } });
  expect(with_cost({})).toEqual([]);
  const bars = with_cost({
    caller: 1_000_000,
    granted: 500_000,
    used: 300_000,
    own: 100_000,
    below: 200_000,
  });
  expect(bars.map(({ name, start, share }) => [name, start, share])).toEqual([
    ["caller", 0, 1],
    ["granted", 0, 0.5],
    ["own", 0, 0.1],
    ["below", 0.1, 0.2],
  ]);
});

test("what is not known has no bar", () => {
  expect(timeBars(remit).map(({ name, share }) => [name, share])).toEqual([
    ["granted", 1],
    ["used", 0.25],
  ]);
});

test("every verdict has a tone", () => {
  expect(["allow", "ask", "refuse", "not_asked", "new"].map(verdictTone)).toEqual([
    "good",
    "ask",
    "bad",
    "calm",
    "calm",
  ]);
});
