// What a person should know of a conversation before anything else: an end, a failure, a pause, a limit that is near.

import { Link } from "wouter";
import { count, duration } from "@/look/format";
import { texts } from "@/texts";
import { hasEnded, type LimitName, nearLimits } from "@/views/chat/model";
import type { Run } from "@/views/chat/store";

export function Banners({ run }: { run: Run }) {
  const words = texts.chat;
  if (hasEnded(run) && run.ended !== null) {
    const { title, advice } = words.ended[run.ended];
    const tone = run.ended === "done" ? "good" : run.ended === "user" ? "" : "bad";
    return (
      <div className={`banner ${tone}`} role="alert">
        <strong>{title}</strong>
        {run.banner ? <span>{run.banner}.</span> : null}
        <span>{advice}</span>
        <Link href={`/chat/new?from=${run.id}`} className="button">
          {words.again}
        </Link>
      </div>
    );
  }
  if (run.state === "error") {
    return (
      <div className="banner bad" role="alert">
        <strong>{words.errorTitle}</strong>
        <span>{run.failure}</span>
        <span>{words.errorAdvice}</span>
      </div>
    );
  }
  return (
    <>
      {run.state === "paused" ? (
        <div className="banner" role="status">
          <strong>{words.pausedTitle}</strong>
          {run.kept > 0 ? <span>{words.pausedKept(run.kept)}</span> : null}
        </div>
      ) : null}
      <Near run={run} />
    </>
  );
}

function Near({ run }: { run: Run }) {
  const near = nearLimits(run);
  if (near.length === 0) return null;
  return (
    <div className="banner warn" role="status">
      {near.map((name) => (
        <span key={name}>{left(run, name)}</span>
      ))}
      <span>{texts.chat.nearAdvice}</span>
    </div>
  );
}

function left(run: Run, name: LimitName): string {
  const { used, most } = run.limits?.[name] ?? { used: 0, most: 0 };
  const rest = Math.max(0, (most ?? 0) - used);
  const words = texts.chat.near;
  if (name === "turns") return words.turns(rest);
  if (name === "active_ms") return words.active_ms(duration(Math.ceil(rest / 1_000) * 1_000));
  return name === "tokens" ? words.tokens(count(rest)) : words.failures;
}
