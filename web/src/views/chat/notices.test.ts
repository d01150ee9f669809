import { expect, test } from "vitest";
import { newlyWaiting } from "./notices";
import { aRun } from "./samples";
import { after, NOTHING, type Run } from "./store";

const told = (runs: Run[], ready = true) =>
  runs.reduce((state, data) => after(state, { type: "run", data, id: "" }, new Set(), 0), {
    ...NOTHING,
    ready,
  });

test("each draft and each question is told once, and what waited before the page was there is not", () => {
  const draft = { id: "r.p1", text: "hello", reviews: [], took_ms: 1 };
  const question = { id: "q", title: "rm", kind: "", details: "", choices: [] };
  const old = aRun({ id: "old", draft, state: "ready_to_send" });
  expect(newlyWaiting(told([old], false))).toBeNull();
  expect(newlyWaiting(told([old]))).toBeNull();
  const asking = aRun({ device: "bob", questions: [question], state: "waiting_local" });
  expect(newlyWaiting(told([old, asking]))).toBe("bob");
  expect(newlyWaiting(told([old, asking]))).toBeNull();
  expect(newlyWaiting(told([old, { ...asking, questions: [], draft }]))).toBe("bob");
});
