// What each guard decided, in order, and the state of the callee's breaker then.

import { Link } from "wouter";
import { duration } from "@/look/format";
import { State, Time } from "@/look/parts";
import { texts } from "@/texts";
import { type Detail, verdictTone } from "@/views/delegation/model";
import { Part, Words } from "@/views/delegation/Value";

const words = texts.delegation;

export function Verdicts({ detail }: { detail: Detail }) {
  return (
    <div className="stack">
      <ol className="verdicts" aria-label={words.verdictList}>
        {detail.verdicts.map((each) => (
          <li key={each.guard} className={each.verdict}>
            <State
              state={each.verdict}
              word={words.verdicts[each.verdict]}
              tone={verdictTone(each.verdict)}
            />
            <code>{each.guard}</code>
            <span className="says">
              <Words text={each.says} />
              {!each.from_record ? <small> ({words.notFromRecord})</small> : null}
            </span>
          </li>
        ))}
      </ol>
      <Breaker detail={detail} />
    </div>
  );
}

const TONES = { closed: "good", probing: "warn", open: "bad", not_asked: "calm" } as const;

function Breaker({ detail }: { detail: Detail }) {
  const { state, says, retry_after_ms: wait, before } = detail.breaker;
  return (
    <Part title={words.breaker}>
      <p>
        <State state={state} word={words.breakerStates[state]} tone={TONES[state]} />{" "}
        <span className="soft">
          {says}
          {wait ? `, ${words.retryAfter(duration(wait))}` : ""}
        </span>
      </p>
      <span className="label">{words.before}</span>
      {before.length ? (
        <ul className="lines">
          {before.map((each) => (
            <li key={`${each.run} ${each.path} ${each.at_ms}`}>
              <State state={each.status} /> {each.code ? <small>{each.code}</small> : null}{" "}
              <Link href={`/runs/${each.run}/d/${each.path}`}>
                <Time at={each.at_ms} />
              </Link>
            </li>
          ))}
        </ul>
      ) : (
        <p className="soft">{words.nothingBefore}</p>
      )}
    </Part>
  );
}
