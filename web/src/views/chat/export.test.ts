import { expect, test } from "vitest";
import { asJson, asMarkdown } from "./export";
import { anEntry, aRun } from "./samples";

const RUN = aRun({
  state: "stopped",
  turn: 1,
  banner: "The run has ended at its limit of 1 turn",
  kept_replies: [anEntry(3, { role: "remote_agent", text: "late" })],
});
const ENTRIES = [
  anEntry(1, {
    label: "edited",
    text: "mine",
    original: "```\nits\n```",
    reviews: [
      { rule: "manual", why: "always" },
      { rule: "links", why: "It links to example.com." },
    ],
  }),
  anEntry(2, { label: "rejected", reason: "too\nlong" }),
];

test("Markdown has the objective, who said what, labels, rules, changes and the limit", () => {
  const text = asMarkdown(RUN, ENTRIES, "bob-desktop");
  for (const part of [
    "# review this API",
    "- With: helper (bob-desktop)",
    "## Local agent, mine (edited)",
    "- Rule `links`: It links to example.com.",
    "````text\n```\nits\n```\n````",
    "## Local agent, mine (rejected)",
    "Reason: too long",
    "## Remote agent",
    "> The run has ended at its limit of 1 turn",
  ]) {
    expect(text).toContain(part);
  }
  expect(text).not.toContain("always");
  expect(text.indexOf("mine (edited)")).toBeLessThan(text.indexOf("mine (rejected)"));
});

test("JSON has all entries once, in order", () => {
  const read = JSON.parse(asJson(RUN, ENTRIES, "bob-desktop")) as Record<string, unknown>;
  expect(read["format"]).toBe("remit.conversation/1");
  expect(read["device"]).toEqual({ id: "d", name: "bob-desktop" });
  expect((read["entries"] as { id: string }[]).map(({ id }) => id)).toEqual(["r.e1", "r.e2", "r.e3"]);
});
