import { expect, test } from "vitest";
import { afterRemoval, beside, editedText, editsOf, fieldsOf, stillThere } from "@/views/approvals/model";

test("the keys go through the list and stop at its ends", () => {
  const ids = ["a", "b", "c"];
  expect(beside(ids, "a", 1)).toBe("b");
  expect(beside(ids, "c", 1)).toBe("c");
  expect(beside(ids, "a", -1)).toBe("a");
  expect(beside(ids, null, 1)).toBe("a");
  expect(beside(ids, "gone", -1)).toBe("c");
  expect(beside([], "a", 1)).toBeNull();
});

test("after an answer the next question takes its place", () => {
  expect(afterRemoval(["a", "b", "c"], ["a", "c"], "b")).toBe("c");
  expect(afterRemoval(["a", "b"], ["a"], "b")).toBe("a");
  expect(afterRemoval(["a"], [], "a")).toBeNull();
});

test("an input that was a structure is edited as JSON, a text as it is", () => {
  expect(editedText({ sum: 5 })).toBe('{\n  "sum": 5\n}');
  const request = { objective: "Pay", input: { sum: 5 } };
  expect(editsOf({ input: '{"sum": 4}' }, request)).toEqual({ edits: { input: { sum: 4 } }, wrong: [] });
  expect(editsOf({ input: "{sum" }, request)).toEqual({ edits: {}, wrong: ["input"] });
  expect(editsOf({ objective: "Pay", input: editedText(request.input) }, request).edits).toEqual({});
  expect(editsOf({ input: "{sum" }, { objective: "", input: "5 euros" }).edits).toEqual({ input: "{sum" });
});

test("a selection forgets what no longer waits", () => {
  expect(stillThere(new Set(["a", "b"]), ["b", "c"])).toEqual(new Set(["b"]));
});

test("the fields of a form say what may be entered", () => {
  const properties = {
    name: { type: "string", description: "Who travels" },
    seat: { type: "string", oneOf: [{ const: "a", title: "Aisle" }, { const: "w" }] },
    extras: { type: "array", items: { type: "string", enum: ["bag", "bike"] } },
  };
  expect(fieldsOf({ type: "object", properties })).toEqual([
    ["name", "Who travels: string"],
    ["seat", "a (Aisle), w"],
    ["extras", "bag, bike"],
  ]);
  expect(fieldsOf(null)).toEqual([]);
});
