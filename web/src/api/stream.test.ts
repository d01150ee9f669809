import { expect, test } from "vitest";
import { EventParser } from "./stream";

const TEXT = ': hello\n\nevent: run\nid: 7\ndata: {"a":\ndata: 1}\n\ndata: [2]\r\n\r\n';
const EVENTS = [
  { type: "run", id: "7", data: { a: 1 } },
  { type: "message", id: "", data: [2] },
];

test("a stream gives the same events wherever it is cut", () => {
  for (let size = 1; size <= TEXT.length; size++) {
    const parser = new EventParser();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...parser.take(TEXT.slice(at, at + size)));
    expect(found).toEqual(EVENTS);
  }
});

test("a number without data says how far the stream is, and is no event", () => {
  const passed: string[] = [];
  const parser = new EventParser((id) => passed.push(id));
  expect([...parser.take("id: 7\ndata: 1\n\nid: 9\n\n")]).toEqual([{ type: "message", id: "7", data: 1 }]);
  expect(passed).toEqual(["7", "9"]);
});
