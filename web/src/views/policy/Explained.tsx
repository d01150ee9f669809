// What the guards say of a call: now, and beside it with the draft.

import { count, counted, duration, type Tone } from "@/look/format";
import { Badge, State } from "@/look/parts";
import { texts } from "@/texts";
import { verdictTone } from "@/views/delegation/model";
import { Marked, Part, Value, Words } from "@/views/delegation/Value";
import { type Explanation, type GuardVerdict, type PolicyAnswer, rowsOf } from "@/views/policy/model";

const words = texts.policy;
const OUTCOMES: Record<Explanation["outcome"], Tone> = { allowed: "good", asks: "ask", refused: "bad" };

export function Explained({ answer }: { answer: PolicyAnswer }) {
  const { now, draft, changed } = answer;
  return (
    <>
      <div className="outcomes">
        <Outcome title={words.outcomeNow} found={now} />
        {draft ? <Outcome title={words.outcomeDraft} found={draft.explanation} /> : null}
      </div>
      {draft ? (
        <section className="card body-only">
          <p role="status">
            <strong>{changed.length ? words.changedCount(changed.length) : words.noChange}</strong>
          </p>
          <Keys title={words.considered} keys={draft.considered} />
          <Keys title={words.ignored} keys={draft.ignored} />
          {draft.considered.length || draft.ignored.length ? null : <p className="soft">{words.same}</p>}
        </section>
      ) : null}
      <VerdictTable answer={answer} />
      <Found found={draft ? draft.explanation : now} />
    </>
  );
}

function Outcome({ title, found }: { title: string; found: Explanation }) {
  const remit = found.request.remit;
  return (
    <section className="card outcome">
      <span className="label">{title}</span>
      <p>
        <State state={found.outcome} word={words.outcomes[found.outcome]} tone={OUTCOMES[found.outcome]} />{" "}
        <span className="soft">
          {found.by
            ? words.by(found.by)
            : words.granted(
                duration(remit.time_ms),
                count(remit.tokens),
                remit.cost ? counted(remit.cost) : "",
              )}
        </span>
      </p>
      {found.question ? (
        <p>
          <Marked text={found.question} />
        </p>
      ) : null}
      {found.fault ? (
        <>
          <p>
            <Words text={found.fault.message} />
          </p>
          <p className="soft">
            <Words text={found.fault.suggestion} />
          </p>
          <small>{found.fault.code}</small>
          <ul className="lines">
            {problemsOf(found).map((each) => (
              <li key={each.path}>
                <code>{each.path}</code> {each.message}
              </li>
            ))}
          </ul>
        </>
      ) : null}
    </section>
  );
}

/** A fault is sent without the fields that have their default. */
const problemsOf = ({ fault }: Explanation): { path: string; message: string }[] =>
  (fault as { problems?: { path: string; message: string }[] } | null)?.problems ?? [];

function Keys({ title, keys }: { title: string; keys: string[] }) {
  if (!keys.length) return null;
  return (
    <div>
      <span className="label">{title}</span>
      <p className="names">
        {keys.map((key) => (
          <code key={key}>{key}</code>
        ))}
      </p>
    </div>
  );
}

function VerdictTable({ answer }: { answer: PolicyAnswer }) {
  const both = answer.draft !== null;
  return (
    <section className="card">
      <div className="head">
        <h2>{words.verdicts}</h2>
      </div>
      <div className="table-wrap" role="region" aria-label={words.verdicts} tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th scope="col">{words.guard}</th>
              <th scope="col">{words.now}</th>
              {both ? <th scope="col">{words.draft}</th> : null}
              <th scope="col">{words.reason}</th>
            </tr>
          </thead>
          <tbody>
            {rowsOf(answer).map(({ guard, now, then, changed }) => (
              <tr key={guard} className={changed ? "changed" : ""}>
                <td>
                  <code>{guard}</code> {changed ? <Badge tone="warn">{words.changed}</Badge> : null}
                </td>
                <td>
                  <Verdict found={now} />
                </td>
                {both ? (
                  <td>
                    <Verdict found={then} />
                  </td>
                ) : null}
                <td className="says">
                  <Words text={(then ?? now)?.says ?? ""} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Verdict({ found }: { found: GuardVerdict | undefined }) {
  if (!found) return <span className="soft">–</span>;
  return (
    <State
      state={found.verdict}
      word={texts.delegation.verdicts[found.verdict]}
      tone={verdictTone(found.verdict)}
    />
  );
}

function Found({ found }: { found: Explanation }) {
  const listed = (names: string[]) => names.join(", ") || words.none;
  return (
    <section className="card body-only stack">
      {found.struck.length ? (
        <Part title={words.struck}>
          <ul className="lines">
            {found.struck.map((each, place) => (
              <li key={place}>{words.struckLine(each.kind, each.place, each.shown)}</li>
            ))}
          </ul>
          <Value value={found.request.objective} />
        </Part>
      ) : null}
      <Part title={words.powers}>
        <p>{words.powersLine(listed(found.tools), listed(found.targets))}</p>
      </Part>
    </section>
  );
}
