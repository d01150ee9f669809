import { expect, test } from "vitest";
import {
  activeMs,
  doing,
  lineOf,
  nearLimits,
  newerThan,
  numberOf,
  stopOf,
  timelineOf,
  waitingFor,
} from "./model";
import { anEntry, aRun, DAY } from "./samples";

test("messages, rejected drafts, kept replies and earlier pages are in one order, each once", () => {
  const run = aRun({
    timeline: [anEntry(9), anEntry(11)],
    rejected: [anEntry(10, { label: "rejected" })],
    kept_replies: [anEntry(12, { role: "remote_agent", at_ms: DAY + 1 })],
  });
  const items = timelineOf(run, [anEntry(8), anEntry(9)]);
  expect(items.map(({ entry }) => numberOf(entry))).toEqual([8, 9, 10, 11, 12]);
  expect(items.map(({ kept }) => kept)).toEqual([false, false, false, false, true]);
  expect(items.map(({ day }) => day)).toEqual([true, false, false, false, true]);
  expect(newerThan(items, 10)).toBe(2);
});

test("a draft waits only while the run goes on, and each question waits too", () => {
  const draft = { id: "d", text: "hello", reviews: [], took_ms: 1 };
  const question = { id: "q", title: "rm", kind: "", details: "", choices: [] };
  expect(waitingFor(aRun({ draft, state: "ready_to_send", questions: [question] }))).toBe(2);
  expect(waitingFor(aRun({ draft, state: "stopped" }))).toBe(0);
  expect(lineOf(aRun({ draft, state: "paused" }))).toMatchObject({ waits: true, questions: 0, at_ms: null });
});

test("the state in words depends on who writes and on what waits", () => {
  const line = { waits: false, questions: 0 };
  expect(doing({ ...line, state: "processing_remote" }, "person")).toBe("yours");
  expect(doing({ ...line, state: "processing_remote" }, "agent")).toBe("writing");
  expect(doing({ ...line, state: "waiting_local", questions: 1 }, "agent")).toBe("asking");
  expect(doing({ ...line, state: "ready_to_send", waits: true })).toBe("draft");
  expect(doing({ ...line, state: "ready_to_send" })).toBe("sending");
  expect(doing({ ...line, state: "completed" })).toBe("done");
  expect(doing({ ...line, state: "error" })).toBe("error");
});

test("limits that are nearly reached are named while the run goes on", () => {
  const quantity = (used: number, most: number | null) => ({ used, most });
  const limits = {
    turns: quantity(6, 8),
    active_ms: quantity(10, 600_000),
    tokens: quantity(900, null),
    failures: quantity(2, 3),
    calls: quantity(0, 3),
    rate: { used: 0, most: 30, window_ms: 60_000, ends_ms: null },
  };
  expect(nearLimits(aRun({ limits }))).toEqual(["turns", "failures"]);
  expect(nearLimits(aRun({ limits, state: "stopped" }))).toEqual([]);
  expect(nearLimits(aRun({ limits: null }))).toEqual([]);
});

test("a draft that was cut off says by what", () => {
  expect(stopOf(aRun({ state: "waiting_local" }))).toBeNull();
  expect(stopOf(aRun({ state: "error", failure: "it crashed" }))).toEqual({
    by: "failure",
    why: "it crashed",
  });
  expect(stopOf(aRun({ decides: "person" }))).toEqual({ by: "you" });
  expect(stopOf(aRun({ state: "stopped", ended: "max_duration_ms" }))).toEqual({ by: "limit" });
});

test("time passes only while the run is at work", () => {
  expect(activeMs(aRun({ active_ms: 100, is_active: true }), 1_000, 1_500)).toBe(600);
  expect(activeMs(aRun({ active_ms: 100, is_active: true }), 1_000, 500)).toBe(100);
  expect(activeMs(aRun({ active_ms: 100 }), 1_000, 1_500)).toBe(100);
});
