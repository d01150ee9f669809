// What a person changed in a draft, word by word.

import { diffWordsWithSpace } from "diff";

export interface Part {
  kind: "same" | "added" | "removed";
  text: string;
}

/** Return the parts of both texts in order; the ones that are not added make up *before*, not removed *now*. */
export function wordParts(before: string, now: string): Part[] {
  return diffWordsWithSpace(before, now).map((part) => ({
    kind: part.added ? "added" : part.removed ? "removed" : "same",
    text: part.value,
  }));
}

/** How many words were added and removed. */
export function changeOf(parts: readonly Part[]): { added: number; removed: number } {
  const count = (kind: Part["kind"]) =>
    parts
      .filter((part) => part.kind === kind)
      .reduce((sum, part) => sum + part.text.split(/\s+/).filter(Boolean).length, 0);
  return { added: count("added"), removed: count("removed") };
}
