// The objective of a conversation, pinned above what was said, and changed in place.

import { Pencil, Target } from "lucide-react";
import { type SyntheticEvent, useId } from "react";
import { isSend } from "@/look/keys";
import { texts } from "@/texts";
import type { Acting } from "@/views/chat/acts";
import type { Run } from "@/views/chat/store";
import { useTyped } from "@/views/chat/typed";

export function Objective({ run, acting }: { run: Run; acting: Acting }) {
  const [typed, setTyped] = useTyped(`objective:${run.id}`);
  const field = useId();
  const words = texts.chat;
  if (typed === null || !run.acts.includes("set_objective")) {
    return (
      <div className="chat-objective">
        <Target size={14} aria-hidden />
        <span className="unseen">{words.objective}: </span>
        <p title={run.objective} className={run.objective ? "" : "soft"}>
          {run.objective || words.noObjective}
        </p>
        {run.acts.includes("set_objective") ? (
          <button type="button" className="button plain" onClick={() => setTyped(run.objective)}>
            <Pencil size={12} aria-hidden />
            {run.objective ? words.changeObjective : words.setObjective}
            <span className="unseen"> {words.objective}</span>
          </button>
        ) : null}
      </div>
    );
  }
  const change = async (event?: SyntheticEvent) => {
    event?.preventDefault();
    if (typed.trim() && (await acting.act("set_objective", { objective: typed }))) setTyped(null);
  };
  return (
    <form className="chat-objective editing" onSubmit={change}>
      <label className="unseen" htmlFor={field}>
        {words.objective}
      </label>
      <textarea
        id={field}
        className="input"
        rows={2}
        value={typed}
        maxLength={100_000}
        // The person asked for this field just now.
        // eslint-disable-next-line jsx-a11y/no-autofocus
        autoFocus
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") setTyped(null);
          if (isSend(event)) void change();
        }}
      />
      <button type="submit" className="button main" disabled={!typed.trim() || acting.busy !== ""}>
        {words.setObjective}
      </button>
      <button type="button" className="button" onClick={() => setTyped(null)}>
        {texts.common.back}
      </button>
    </form>
  );
}
