import { expect, test } from "vitest";
import { changeOf, wordParts } from "./words";

const joined = (before: string, now: string, but: string) =>
  wordParts(before, now)
    .filter(({ kind }) => kind !== but)
    .map(({ text }) => text)
    .join("");

test("both texts can be read from the parts, with every space and line", () => {
  for (const [before, now] of [
    ["Is it  the same?", "Is it really the\nsame?"],
    ["", "new"],
    ["all gone", ""],
    ["straße äöü 你好", "Straße äöü 你好吗"],
  ] as const) {
    expect(joined(before, now, "added")).toBe(before);
    expect(joined(before, now, "removed")).toBe(now);
  }
});

test("whole words change, and are counted", () => {
  const parts = wordParts("please delete all orders", "please list all open orders");
  expect(parts.filter(({ kind }) => kind === "removed").map(({ text }) => text.trim())).toEqual(["delete"]);
  expect(changeOf(parts)).toEqual({ added: 2, removed: 1 });
});
