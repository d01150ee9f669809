import { describe, expect, it } from "vitest";
import { command, type Description, example, groups, limits, matching, parts, type Schema } from "./model";

const ask = {
  operationId: "ask",
  summary: "Ask an agent.",
  tags: ["delegations"],
  requestBody: {
    required: true,
    content: { "application/json": { schema: { $ref: "#/components/schemas/Ask" } } },
  },
  responses: {},
};
const health = { operationId: "healthz", summary: "Alive?", security: [], responses: {} };
const made: Description = {
  info: { title: "Remit", version: "1" },
  tags: [
    { name: "delegations", description: "Ask agents." },
    { name: "runs", description: "None here." },
  ],
  paths: { "/healthz": { get: health }, "/v1/delegations": { post: ask } },
};
const schemas: Record<string, Schema> = {
  Ask: {
    type: "object",
    required: ["target", "kind", "list"],
    properties: {
      target: { type: "string" },
      kind: { enum: ["it's", "b"] },
      list: { type: "array", items: { $ref: "#/components/schemas/Ask" } },
      more: { type: "integer" },
    },
  },
  Loop: { type: "object", required: ["again"], properties: { again: { $ref: "#/components/schemas/Loop" } } },
};

describe("the page of the API", () => {
  it("groups operations by tags, and those without one last", () => {
    const found = groups(made, "other");
    expect(found.map((each) => [each.name, each.entries.map((entry) => entry.path)])).toEqual([
      ["delegations", ["/v1/delegations"]],
      ["other", ["/healthz"]],
    ]);
    expect(matching(found, "post DELEG").map((each) => each.name)).toEqual(["delegations"]);
    expect(matching(found, "nothing")).toEqual([]);
  });

  it("says types and limits in words", () => {
    const nullable = {
      anyOf: [{ type: "array", items: { $ref: "#/components/schemas/Ask" } }, { type: "null" }],
    };
    expect(parts(nullable, "any")).toEqual(["array of ", { schema: "Ask" }, " or ", "null"]);
    expect(parts({}, "any")).toEqual(["any"]);
    expect(parts({ enum: ["a", 1] }, "any")).toEqual(['"a" | 1']);
    expect(limits({ type: "string", minLength: 1, maxLength: 200 })).toBe("1 to 200 characters");
    expect(limits({ type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER })).toBe("");
    expect(limits({ type: "string", pattern: "^((a|b)(,(a|b))*)?$" })).toBe(
      "some of a, b, separated by commas",
    );
    expect(limits({ type: "string", pattern: "^[0-9]+$" })).toBe("");
  });

  it("makes examples that end, and commands that a shell reads", () => {
    const body = { target: "text", kind: "it's", list: [] };
    expect(example({ $ref: "#/components/schemas/Ask" }, schemas)).toEqual(body);
    expect(JSON.stringify(example({ $ref: "#/components/schemas/Loop" }, schemas))).toContain("again");
    const sent = command({ method: "POST", path: "/v1/delegations", operation: ask }, "http://h", schemas);
    expect(sent).toContain(`"kind":"it'\\''s"`);
    expect(sent).toContain("Authorization");
    expect(command({ method: "GET", path: "/healthz", operation: health }, "http://h", {})).toBe(
      "curl http://h/healthz",
    );
  });
});
