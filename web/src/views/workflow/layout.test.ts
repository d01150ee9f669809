import { describe, expect, test } from "vitest";
import { boxes, isPassage, layered, line, SIZE } from "./layout";

const step = (name: string, ...after: string[]) => ({ name, after });
const rows = (steps: ReturnType<typeof step>[]) => layered(steps).rows;

describe("the layers of a workflow", () => {
  test("a step stands in the layer after the last step that it waits for", () => {
    expect(rows([step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e")])).toEqual([
      ["a", "e"],
      ["b", "c"],
      ["d"],
    ]);
  });

  test("a line that others imply is left out", () => {
    const found = layered([step("a"), step("b", "a"), step("c", "a", "b")]);
    expect(found.lines).toEqual([
      ["a", "b"],
      ["b", "c"],
    ]);
  });

  test("a long line passes between the steps of the layers on its way", () => {
    const found = layered([step("a"), step("b", "a"), step("c", "b"), step("x"), step("d", "c", "x")]);
    const long = found.lines.find((each) => each[0] === "x") ?? [];
    expect(long).toHaveLength(4);
    expect(long.slice(1, -1).every(isPassage)).toBe(true);
    expect(found.rows.map((row) => row.length)).toEqual([2, 2, 2, 1]);
  });

  test("steps are ordered so that lines do not cross", () => {
    expect(rows([step("a"), step("b"), step("x", "b"), step("y", "a")])[1]).toEqual(["y", "x"]);
  });

  test("unknown steps, circles and empty plans do no harm", () => {
    expect(layered([])).toEqual({ rows: [], lines: [] });
    expect(layered([step("a", "gone", "a")]).lines).toEqual([]);
    expect(rows([step("a", "b"), step("b", "a")]).flat()).toHaveLength(2);
  });
});

describe("the picture", () => {
  test("boxes do not overlap, and a small layer stands in the middle", () => {
    const { at, width, height } = boxes(
      layered([step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")]),
    );
    const down = SIZE.height + SIZE.down;
    const [left, middle, right] = [0, 1, 2].map((layer) => SIZE.edge + layer * (SIZE.width + SIZE.across));
    expect(Object.fromEntries(at)).toEqual({
      a: { x: left, y: SIZE.edge + down / 2 },
      b: { x: middle, y: SIZE.edge },
      c: { x: middle, y: SIZE.edge + down },
      d: { x: right, y: SIZE.edge + down / 2 },
    });
    expect(width).toBe((right ?? 0) + SIZE.width + SIZE.edge);
    expect(height).toBe(2 * SIZE.height + SIZE.down + 2 * SIZE.edge);
  });

  test("a line goes from the right side of a box through passages to the left side of another", () => {
    const found = layered([step("a"), step("b", "a"), step("c", "b"), step("x"), step("d", "c", "x")]);
    const { at } = boxes(found);
    const drawn = line(found.lines.find((each) => each[0] === "x") ?? [], at);
    const end = at.get("d");
    expect(drawn.startsWith(`M ${SIZE.edge + SIZE.width} `)).toBe(true);
    expect(drawn.split("H")).toHaveLength(3);
    expect(drawn.endsWith(`${end?.x} ${(end?.y ?? 0) + SIZE.height / 2}`)).toBe(true);
  });
});
