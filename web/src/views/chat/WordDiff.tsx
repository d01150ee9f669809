// A draft and what a person made of it, in one text.

import { useMemo } from "react";
import { texts } from "@/texts";
import { changeOf, wordParts } from "@/views/chat/words";

export default function WordDiff({ before, now }: { before: string; now: string }) {
  const parts = useMemo(() => wordParts(before, now), [before, now]);
  const { added, removed } = changeOf(parts);
  return (
    <div className="chat-diff">
      <span className="label">
        {texts.chat.changes}
        {": "}
        {before === now ? texts.chat.unchanged : texts.chat.changed(added, removed)}
      </span>
      <p className="chat-text">
        {parts.map((part, place) =>
          part.kind === "added" ? (
            <ins key={place}>{part.text}</ins>
          ) : part.kind === "removed" ? (
            <del key={place}>{part.text}</del>
          ) : (
            <span key={place}>{part.text}</span>
          ),
        )}
      </p>
    </div>
  );
}
