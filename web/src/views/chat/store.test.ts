import { expect, test } from "vitest";
import { anEntry, aRun } from "./samples";
import { after, NOTHING, type Shared } from "./store";

const event = (type: string, data: unknown) => ({ type, data, id: "" });

function told(state: Shared, events: ReturnType<typeof event>[]): Shared {
  const runs = new Set<string>();
  return events.reduce((now, each) => after(now, each, runs, 7), state);
}

test("the newest view of each thing replaces the one before", () => {
  const state = told(NOTHING, [
    event("run", aRun({ turn: 1 })),
    event("run", aRun({ turn: 2 })),
    event("connection", { state: "connected", since_ms: 1, why: "" }),
    event("draft", { run: "r", draft: "r.p1", text: "Hel" }),
    event("draft", { run: "r", draft: "r.p1", text: "Hello" }),
    event("ready", { resumed: false }),
    event("unheard-of", {}),
  ]);
  expect(state.runs.get("r")).toMatchObject({ view: { turn: 2 }, atMs: 7, stale: false });
  expect([state.ready, state.connection?.state, state.writing.get("r")?.text]).toEqual([
    true,
    "connected",
    "Hello",
  ]);
});

test("what an agent was writing is shown until its draft is whole, was sent or was rejected", () => {
  const written = told(NOTHING, [
    event("run", aRun({ state: "waiting_local" })),
    event("draft", { run: "r", draft: "r.p1", text: "Hel" }),
  ]);
  const isShown = (changes: Parameters<typeof aRun>[0]) =>
    told(written, [event("run", aRun(changes))]).writing.has("r");
  const draft = { id: "r.p1", text: "Hello", reviews: [], took_ms: 1 };
  expect(isShown({ state: "paused" })).toBe(true);
  expect(isShown({ state: "error" })).toBe(true);
  expect(isShown({ state: "planning", decides: "person" })).toBe(true);
  expect(isShown({ state: "paused", draft })).toBe(false);
  expect(isShown({ state: "waiting_remote" })).toBe(false);
  expect(isShown({ state: "waiting_local", turn: 1 })).toBe(false);
});

test("after a restart of the device, runs that it did not tell of are read anew, and lists too", () => {
  const before = told(NOTHING, [
    event("run", aRun()),
    event("run", aRun({ id: "gone" })),
    event("ready", { resumed: false }),
  ]);
  const restarted = told(before, [event("run", aRun()), event("ready", { resumed: false })]);
  expect([...restarted.runs].map(([id, { stale }]) => [id, stale])).toEqual([
    ["r", false],
    ["gone", true],
  ]);
  expect(restarted.epoch).toBe(before.epoch + 1);
  const resumed = told(before, [event("ready", { resumed: true })]);
  expect([resumed.epoch, resumed.runs]).toEqual([before.epoch, before.runs]);
});

test("a run that was not known makes lists be read anew", () => {
  const before = told(NOTHING, [event("ready", { resumed: false })]);
  expect(told(before, [event("run", aRun())]).epoch).toBe(before.epoch + 1);
});

test("entries that a longer run no longer shows are kept", () => {
  const entries = [anEntry(1), anEntry(2), anEntry(3)];
  const state = told(NOTHING, [
    event("run", aRun({ timeline: entries.slice(0, 2) })),
    event("run", aRun({ timeline: entries.slice(1), earlier: 1 })),
  ]);
  expect(state.runs.get("r")?.past.map(({ id }) => id)).toEqual(["r.e1"]);
});
