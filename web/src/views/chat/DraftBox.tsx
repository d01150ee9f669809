// A draft of the local agent that waits: approved as it is, edited in place, or rejected with a reason.

import { Check, Pencil, X } from "lucide-react";
import { duration } from "@/look/format";
import { isSend } from "@/look/keys";
import { CopyButton, SendKeys } from "@/look/parts";
import { texts } from "@/texts";
import type { Acting } from "@/views/chat/acts";
import { Rules } from "@/views/chat/EntryCard";
import { hasEnded } from "@/views/chat/model";
import { Avatar, Changes } from "@/views/chat/parts";
import type { Run } from "@/views/chat/store";
import { keepTyped, useTyped, useTypedKeys } from "@/views/chat/typed";

type Draft = NonNullable<Run["draft"]>;

export function DraftBox({ run, draft, acting }: { run: Run; draft: Draft; acting: Acting }) {
  const [edited, setEdited] = useTyped(`draft:${draft.id}`);
  const [reason, setReason] = useTyped(`reject:${draft.id}`);
  const words = texts.chat;
  const ended = hasEnded(run);
  const clear = () => {
    setEdited(null);
    setReason(null);
  };
  const approve = async () => {
    const text = edited === null || edited === draft.text ? {} : { text: edited };
    if (await acting.act("approve", { draft: draft.id, ...text })) clear();
  };
  const reject = async () => {
    if (await acting.act("reject", { draft: draft.id, reason: reason ?? "" })) clear();
  };
  return (
    <section className="chat-draft" aria-label={words.draft} id="chat-waiting" tabIndex={-1}>
      <div className="line">
        <Avatar of="local_agent" />
        <strong>{ended ? words.unsentDraft : words.draftOfTurn(run.turn + 1)}</strong>
        {draft.took_ms > 0 ? <span className="soft">{words.took(duration(draft.took_ms))}</span> : null}
      </div>
      <Rules reviews={draft.reviews} />
      {draft.reviews.some(({ rule }) => rule === "credentials") ? (
        <p className="soft">{words.hiddenCredentials}</p>
      ) : null}
      {edited === null ? (
        // A long draft scrolls, by keys too.
        <div className="chat-draft-text" role="region" tabIndex={0} aria-label={words.draftText}>
          <p className="chat-text">{draft.text}</p>
        </div>
      ) : (
        <>
          <textarea
            className="input"
            aria-label={words.editing}
            value={edited}
            rows={Math.min(8, Math.max(3, edited.split("\n").length + 1))}
            maxLength={100_000}
            // The person asked for this field just now.
            // eslint-disable-next-line jsx-a11y/no-autofocus
            autoFocus
            onChange={(event) => setEdited(event.target.value)}
            onKeyDown={(event) => {
              if (isSend(event) && acting.may("approve")) void approve();
              if (event.key === "Escape" && edited === draft.text) setEdited(null);
            }}
          />
          <Changes before={draft.text} now={edited} />
        </>
      )}
      {reason === null ? null : (
        <>
          <input
            className="input"
            aria-label={words.rejectWhy}
            placeholder={words.rejectWhy}
            value={reason}
            maxLength={2_000}
            // The person asked for this field just now.
            // eslint-disable-next-line jsx-a11y/no-autofocus
            autoFocus
            onChange={(event) => setReason(event.target.value)}
            onKeyDown={(event) => {
              if (isSend(event) && acting.may("reject")) void reject();
              if (event.key === "Escape") setReason(null);
            }}
          />
          <SendKeys act={words.reject} />
        </>
      )}
      {ended ? null : (
        <div className="chat-acts">
          {reason === null ? (
            <button
              id="chat-approve"
              type="button"
              className="button main"
              disabled={!acting.may("approve") || (edited !== null && !edited.trim())}
              onKeyDown={(event) => {
                if (!isSend(event)) return;
                event.preventDefault();
                event.currentTarget.click();
              }}
              onClick={() => void approve()}
            >
              <Check size={14} aria-hidden />
              {edited === null || edited === draft.text ? words.approve : words.approveEdited}
            </button>
          ) : null}
          {edited === null ? (
            <button
              type="button"
              className="button"
              disabled={!run.acts.includes("approve")}
              onClick={() => setEdited(draft.text)}
            >
              <Pencil size={14} aria-hidden />
              {words.edit}
            </button>
          ) : (
            <button type="button" className="button" onClick={() => setEdited(null)}>
              {words.cancelEdit}
            </button>
          )}
          <button
            type="button"
            className={`button danger ${reason === null ? "" : "sure"}`}
            disabled={!acting.may("reject")}
            onClick={() => (reason === null ? setReason("") : void reject())}
          >
            <X size={14} aria-hidden />
            {words.reject}
          </button>
          {reason === null ? null : (
            <button type="button" className="button plain" onClick={() => setReason(null)}>
              {texts.common.back}
            </button>
          )}
          {run.state === "paused" ? <span className="soft">{words.pausedDraft}</span> : null}
        </div>
      )}
    </section>
  );
}

/** What was typed about a draft that was answered elsewhere, or for a run that has ended: it is not lost. */
export function LeftEdits({ run }: { run: Run }) {
  const keys = useTypedKeys(`draft:${run.id}.`, `reject:${run.id}.`, `say:${run.id}`);
  const ended = hasEnded(run);
  const current = run.draft?.id ?? "";
  const left = keys.filter((key) => (key.startsWith("say:") || key.endsWith(`:${current}`) ? ended : true));
  return left.map((key) => <LeftEdit key={key} name={key} />);
}

function LeftEdit({ name }: { name: string }) {
  const [text] = useTyped(name);
  return (
    <div className="banner warn" role="status">
      <strong>{texts.chat.leftEdit}</strong>
      <span className="chat-left">{text}</span>
      <CopyButton text={text ?? ""} />
      <button type="button" className="button" onClick={() => keepTyped(name, null)}>
        {texts.chat.cancelEdit}
      </button>
    </div>
  );
}
