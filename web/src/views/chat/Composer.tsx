// Where the person writes who has taken over, or chats without an own agent.

import { Send } from "lucide-react";
import { type SyntheticEvent } from "react";
import { isSend } from "@/look/keys";
import { texts } from "@/texts";
import type { Acting } from "@/views/chat/acts";
import type { Run } from "@/views/chat/store";
import { useTyped } from "@/views/chat/typed";

export function Composer({ run, acting }: { run: Run; acting: Acting }) {
  const [typed, setTyped] = useTyped(`say:${run.id}`);
  const text = typed ?? "";
  const words = texts.chat;
  const able = run.acts.includes("say");
  const say = async (event?: SyntheticEvent) => {
    event?.preventDefault();
    if (text.trim() && acting.may("say") && (await acting.act("say", { text }))) setTyped(null);
  };
  return (
    <form className="chat-compose" onSubmit={say}>
      <textarea
        id="chat-waiting"
        className="input"
        aria-label={words.write}
        placeholder={able ? words.write : run.state === "paused" ? words.pausedTitle : words.cannotWrite}
        rows={Math.min(8, Math.max(2, text.split("\n").length))}
        maxLength={100_000}
        value={text}
        onChange={(event) => setTyped(event.target.value || null)}
        onKeyDown={(event) => {
          if (isSend(event)) void say();
        }}
      />
      <button type="submit" className="button main" disabled={!acting.may("say") || !text.trim()}>
        <Send size={14} aria-hidden />
        {words.send}
      </button>
    </form>
  );
}
