import { describe, expect, test } from "vitest";
import { meaningOf, placeOf, rowOf } from "./findings";
import { agentOf, codeOf, type RecordLine, runPath, sentenceOf, toneOfRow } from "./rows";

const row = (kind: string, body: unknown, run = "r"): RecordLine => ({
  schema: "remit.record/1",
  seq: 1,
  kind: kind as RecordLine["kind"],
  at_ms: 0,
  run,
  session: "s",
  body,
});

describe("what a row says", () => {
  const refusal = {
    request: { target: "tag" },
    response: { fault: { code: "LOOP_DETECTED", message: "no" } },
  };
  test.each([
    [
      row("started", { origin: "user", target: "prime", objective: "Sort" }),
      "user asks prime: Sort",
      "prime",
    ],
    [row("delegation", { origin: "a", target: "b", input: { n: 1 } }), 'a asks b: {"n":1}', "b"],
    [row("result", { target: "b", status: "success", result: "two\n lines" }), "two lines", "b"],
    [row("result", { target: "b", status: "failed", fault: { message: "why" } }), "why", "b"],
    [row("refused", refusal), "no", "tag"],
    [row("tool", { agent: "b", tool: "search" }), "uses search", "b"],
    [
      row("tool", { agent: "b", tool: "search", fault: { message: "denied" } }),
      "wants to use search: denied",
      "b",
    ],
    [row("approval", { agent: "b", question: "May it?" }), "asks a person: May it?", "b"],
    [row("approval", { agent: "b", question: "May it?", agreed: true, by: "ann" }), "ann agreed", "b"],
    [row("approval", { agent: "b", agreed: false, by: "ann", reason: "late" }), "ann declined: late", "b"],
    [row("shared", { profile: "p", event: "asked", device: "phone" }), "asked (phone)", "p"],
    [row("break", { text: "a new key" }), "break in the chain: a new key", ""],
    [row("removed", { rule: "messages 90d" }), "texts were removed on purpose: messages 90d", ""],
    [row("progress", { agent: "b", text: "half" }), "half", "b"],
    [row("notice", "not an object"), "", ""],
  ])("%#", (record, said, agent) => {
    expect(sentenceOf(record)).toBe(said);
    expect(agentOf(record)).toBe(agent);
  });

  test("what did not succeed stands out, with its code", () => {
    expect(toneOfRow(row("result", { status: "failed" }))).toBe("bad");
    expect(toneOfRow(row("result", { status: "success" }))).toBe("good");
    expect(toneOfRow(row("notice", { code: "TIMEOUT" }))).toBe("warn");
    expect(toneOfRow(row("tool", {}))).toBe("calm");
    expect(codeOf(row("refused", refusal))).toBe("LOOP_DETECTED");
    expect(codeOf(row("progress", {}))).toBe("");
  });

  test("rows of the store and of refused requests have no run", () => {
    expect(runPath(row("notice", {}, "door"))).toBeNull();
    expect(runPath(row("notice", {}, "a/b"))).toBe("/runs/a%2Fb");
  });
});

describe("where the record was changed", () => {
  const finding = (tampering: string, first: number, last = first) =>
    ({ tampering, first, last, message: "m" }) as Parameters<typeof placeOf>[0];
  test("rows, checkpoints and the whole record are told apart", () => {
    expect(placeOf(finding("edited", 3))).toBe("Row 3");
    expect(placeOf(finding("deleted", 3, 5))).toBe("Rows 3 to 5");
    expect(placeOf(finding("checkpoint missing", 2))).toBe("Checkpoint 2");
    expect(placeOf(finding("checkpoint missing", 2, 4))).toBe("Checkpoints 2 to 4");
    expect(placeOf(finding("checkpoint row missing", 0))).toBe("The whole record");
    expect([rowOf(finding("edited", 3)), rowOf(finding("checkpoint forged", 3))]).toEqual([3, null]);
  });
  test("a finding of a later version is told in its own words", () => {
    expect(meaningOf(finding("new kind", 1))).toBe("m");
  });
});
