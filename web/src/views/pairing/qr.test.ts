import { expect, test } from "vitest";
import { qrOf } from "./qr";

test("the path and the size are taken from the drawing, and nothing else", () => {
  const svg =
    '<svg xmlns="http://www.w3.org/2000/svg" width="76" height="76" class="segno">' +
    '<path transform="scale(4)" class="qrline" stroke="#000" d="M2 2.5h7m1 0h1m-15 1h1"/></svg>';
  expect(qrOf(svg)).toEqual({ size: 19, path: "M2 2.5h7m1 0h1m-15 1h1" });
  for (const wrong of ["", "<p>hello</p>", svg.replace("M2", "javascript:")]) expect(qrOf(wrong)).toBeNull();
});
