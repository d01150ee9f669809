// One entry of a conversation: who wrote it, who let it go and by which rule, and how far it has come.

import { Check, CheckCheck, CircleAlert, Clock } from "lucide-react";
import { useState } from "react";
import { useConsole } from "@/api/console";
import { duration } from "@/look/format";
import { Badge, Time } from "@/look/parts";
import { texts } from "@/texts";
import { LABEL_TONES, rulesOf } from "@/views/chat/model";
import { Avatar, Changes, Files, Said } from "@/views/chat/parts";
import type { Entry, Run } from "@/views/chat/store";

export function EntryCard({ run, entry, kept }: { run: Run; entry: Entry; kept: boolean }) {
  const words = texts.chat;
  const rejected = entry.label === "rejected";
  const person = entry.rejected_by ?? entry.edited_by ?? entry.approved_by;
  const name = entry.written_by.name;
  const { who } = useConsole();
  const isMine = entry.role === "user" && name === who.name;
  return (
    <article className={`chat-entry ${entry.role} ${rejected ? "rejected" : ""}`}>
      <Avatar of={entry.role} />
      <div className="said">
        <div className="line">
          <strong>{words.roles[entry.role]}</strong>
          {name && !isMine ? <span className="soft">{name}</span> : null}
          {entry.label ? <Badge tone={LABEL_TONES[entry.label]}>{words.labels[entry.label]}</Badge> : null}
          {person?.name ? (
            <span className="soft">{person.name === who.name ? words.byYou : words.by(person.name)}</span>
          ) : null}
          {kept ? <Badge tone="warn">{words.keptReply}</Badge> : null}
          <span className="chat-when">
            <Time at={entry.at_ms} past />
          </span>
        </div>
        <Said text={entry.text} />
        {entry.reason ? <p className="chat-reason">{words.rejectedBecause(entry.reason)}</p> : null}
        <Files run={run.id} files={entry.files} />
        <Rules reviews={entry.reviews} />
        {entry.original ? <Original entry={entry} /> : null}
        <div className="under">
          {entry.turn > 0 ? <span>{words.turn(entry.turn)}</span> : null}
          {entry.took_ms > 0 ? <span>{words.took(duration(entry.took_ms))}</span> : null}
          <Delivery entry={entry} />
        </div>
      </div>
    </article>
  );
}

/** The rules that had a person look at a draft, each with its reason. */
export function Rules({ reviews }: { reviews: Entry["reviews"] }) {
  const rules = rulesOf(reviews);
  if (rules.length === 0) return null;
  return (
    <ul className="chat-rules" aria-label={texts.chat.askedBy}>
      {rules.map(({ rule, why }) => (
        <li key={rule}>
          <code>{rule}</code> {why}
        </li>
      ))}
    </ul>
  );
}

function Original({ entry }: { entry: Entry }) {
  const [shown, setShown] = useState(false);
  return (
    <>
      <button
        type="button"
        className="button plain chat-changes"
        onClick={() => setShown(!shown)}
        aria-expanded={shown}
        title={texts.chat.original}
      >
        {shown ? texts.chat.hideChanges : texts.chat.showChanges}
      </button>
      {shown ? <Changes before={entry.original} now={entry.text} /> : null}
    </>
  );
}

const ICONS = {
  waiting: Clock,
  taken: Check,
  delivered: CheckCheck,
  read: CheckCheck,
  answered: CheckCheck,
  failed: CircleAlert,
};

function Delivery({ entry }: { entry: Entry }) {
  const { delivery } = entry;
  const why = entry.failed || delivery?.why;
  if (delivery === null && !entry.failed) return null;
  const state = entry.failed || delivery === null ? "failed" : delivery.state;
  const Icon = ICONS[state];
  return (
    <span className={`chat-delivery ${state}`}>
      <Icon size={12} aria-hidden />
      {texts.chat.delivery[state]}
      {why ? `: ${why}` : null}
    </span>
  );
}
