import { expect, test } from "vitest";
import { breakerTone, found, percent, successTone, type AgentLoad, type CallEdge } from "./figures";
import { layout, USER, widthOf } from "./graph";

const edge = (origin: string, target: string, calls = 1, may = true): CallEdge => ({
  origin,
  target,
  may,
  calls,
  failed: 0,
  refused: 0,
  tokens: 0,
  mean_ms: null,
});

const layers = (agents: string[], edges: CallEdge[], showMay = true) =>
  Object.fromEntries(layout(agents, edges, showMay).nodes.map((each) => [each.name, each.layer]));

test("who is asked by users comes first, then whom those call", () => {
  const edges = [edge(USER, "boss"), edge("boss", "clerk"), edge("clerk", "scribe"), edge("boss", "scribe")];
  expect(layers(["scribe", "clerk", "boss"], edges)).toEqual({ user: 0, boss: 1, clerk: 2, scribe: 2 });
});

test("that a user may ask an agent draws no line until it happens", () => {
  const graph = layout(["boss", "clerk"], [edge(USER, "boss"), edge(USER, "clerk", 0)], true);
  expect(graph.lines.map((line) => line.edge.target)).toEqual(["boss"]);
  expect(graph.nodes.find((node) => node.name === "clerk")?.layer).toBe(1);
});

test("circles and agents that call themselves have a place too", () => {
  const edges = [edge("a", "b"), edge("b", "a"), edge("c", "c")];
  const graph = layout(["a", "b", "c"], edges, true);
  expect(graph.nodes).toHaveLength(3);
  expect(graph.lines).toHaveLength(3);
  expect(new Set(graph.nodes.map((node) => `${node.x},${node.y}`)).size).toBe(3);
});

test("calls that never happened are shown only if they are wanted", () => {
  const edges = [edge("boss", "clerk", 0), edge("boss", "scribe", 3)];
  expect(layout(["boss", "clerk", "scribe"], edges, false).lines).toHaveLength(1);
  expect(layout(["boss", "clerk", "scribe"], edges, true).lines).toHaveLength(2);
});

test("nodes do not overlap and all fit into the picture", () => {
  const names = Array.from({ length: 12 }, (_, index) => `agent-${index}`);
  const graph = layout(
    names,
    names.map((name) => edge(USER, name)),
    true,
  );
  const rows = graph.nodes.filter((node) => node.layer === 1).map((node) => node.y);
  rows.sort((a, b) => a - b);
  expect(rows.every((y, index) => index === 0 || y - (rows[index - 1] ?? 0) >= 40)).toBe(true);
  expect(graph.nodes.every((node) => node.y >= 0 && node.y + 40 <= graph.height)).toBe(true);
});

test("a frequent call is a wider line, and the widest is five pixels", () => {
  expect(widthOf(0, 100)).toBe(1);
  expect(widthOf(1, 100)).toBeGreaterThan(1);
  expect(widthOf(100, 100)).toBe(5);
});

test("a share is not rounded to a hundred per cent while something failed", () => {
  expect([1, 0.99999, 0.5, 0].map(percent)).toEqual(["100%", "99.9%", "50%", "0%"]);
});

test("tones go with the breaker and with the share of successes", () => {
  expect((["closed", "probing", "open"] as const).map(breakerTone)).toEqual(["good", "warn", "bad"]);
  expect([null, 1, 0.9, 0.2].map(successTone)).toEqual(["calm", "good", "warn", "bad"]);
});

test("agents are found by name and description", () => {
  const agents = [
    { name: "clerk", description: "Files papers" },
    { name: "boss", description: "" },
  ] as AgentLoad[];
  expect(found(agents, " PAPERS ").map((each) => each.name)).toEqual(["clerk"]);
  expect(found(agents, "")).toHaveLength(2);
});
