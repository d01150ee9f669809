import { expect, test } from "vitest";
import { EMPTY, inputOf, type PolicyAnswer, questionOf, rowsOf } from "@/views/policy/model";

test("an input is JSON if it can be, else the text itself", () => {
  expect(inputOf('{"sum": 5}')).toEqual({ sum: 5 });
  expect(inputOf("5 euros")).toBe("5 euros");
  expect(inputOf("  ")).toBeNull();
});

test("a form asks for what was filled in, and for nothing else", () => {
  const form = {
    ...EMPTY,
    to: " tax ",
    tools: "read, write ,",
    tokens: "100",
    cost: "0.25",
    deadline: "soon",
  };
  expect(questionOf(form, " ")).toEqual({
    from: "user",
    to: "tax",
    objective: "",
    capability: null,
    input: null,
    user: "someone",
    tools: ["read", "write"],
    max_tokens: 100,
    max_cost: 250_000,
    deadline_ms: null,
    draft: null,
  });
  expect(questionOf(form, "[limits]").draft).toBe("[limits]");
});

const allow = (guard: string) => ({ guard, verdict: "allow" as const, says: "" });

test("two lists of verdicts stand side by side, also where one has a guard more", () => {
  const answer = {
    now: { guards: [allow("depth"), allow("redaction")] },
    draft: { explanation: { guards: [allow("depth"), allow("team_rules"), allow("redaction")] } },
    changed: [{ guard: "team_rules", now: "", then: "allow" }],
  } as unknown as PolicyAnswer;
  expect(rowsOf(answer).map(({ guard, now, changed }) => [guard, now !== undefined, changed])).toEqual([
    ["depth", true, false],
    ["team_rules", false, true],
    ["redaction", true, false],
  ]);
});
