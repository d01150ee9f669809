// What was asked, how it ended, and what to change if it was refused.

import { Link } from "wouter";
import { count, duration } from "@/look/format";
import { Badge, State, Time } from "@/look/parts";
import { texts } from "@/texts";
import { type Advice, type Detail, readable, type Response } from "@/views/delegation/model";
import { Marked, Part, Value, Words } from "@/views/delegation/Value";

const words = texts.delegation;

export function Overview({ detail }: { detail: Detail }) {
  const { response, shown } = detail;
  return (
    <div className="stack">
      <Failure detail={detail} />
      <Part title={words.objective}>
        <Value value={shown.objective} />
      </Part>
      {readable(shown.input) && readable(shown.input) !== shown.objective ? (
        <Part title={words.input}>
          <Value value={shown.input} />
        </Part>
      ) : null}
      <Part title={words.answer}>
        {response ? <Answer response={response} /> : <p className="soft">{words.noAnswer}</p>}
      </Part>
      <Usage detail={detail} />
      <Approvals detail={detail} />
      <Below detail={detail} />
      <Tools detail={detail} />
      <Said detail={detail} />
      <Facts detail={detail} />
    </div>
  );
}

function Failure({ detail }: { detail: Detail }) {
  const fault = detail.response?.fault;
  if (!fault) return null;
  return (
    <div className="trouble">
      <strong>
        <Words text={fault.message} />
      </strong>
      {fault.suggestion ? (
        <span>
          <Words text={fault.suggestion} />
        </span>
      ) : null}
      <small>{fault.code}</small>
      {detail.advice.length ? (
        <div className="advice">
          <h3>{words.whatToChange}</h3>
          <ul>
            {detail.advice.map((each) => (
              <AdviceLine key={each.key} advice={each} />
            ))}
          </ul>
        </div>
      ) : null}
    </div>
  );
}

function AdviceLine({ advice }: { advice: Advice }) {
  const { change } = words;
  return (
    <li>
      <code>{advice.key}</code>
      {advice.value ? (
        <span className="soft">
          {advice.is_set ? change.isNow(advice.value) : change.isDefault(advice.value)}
        </span>
      ) : null}
      <span className="where">
        {advice.line ? change.at(advice.file, advice.line) : change.absent(advice.file)}
      </span>
      <span className="says">
        <Words text={advice.says} />
      </span>
    </li>
  );
}

function Answer({ response }: { response: Response }) {
  const lists: [string, string[]][] = [
    [words.warnings, response.warnings ?? []],
    [words.unfinished, response.unfinished ?? []],
  ];
  return (
    <>
      {readable(response.result) ? <Value value={response.result} /> : <p className="soft">{words.none}</p>}
      {response.summary ? (
        <p className="soft">
          <Marked text={response.summary} />
        </p>
      ) : null}
      {lists.map(([title, lines]) =>
        lines.length ? (
          <div key={title}>
            <span className="label">{title}</span>
            <ul className="lines">
              {lines.map((line, place) => (
                <li key={place}>
                  <Marked text={line} />
                </li>
              ))}
            </ul>
          </div>
        ) : null,
      )}
    </>
  );
}

function Usage({ detail }: { detail: Detail }) {
  const { tokens, time_ms: time } = detail.remit;
  if (tokens.used === null || detail.state === "refused") return null;
  const figures: [string, string][] = [
    [words.ownTokens, count(tokens.own ?? 0)],
    [words.belowTokens, count(tokens.used - (tokens.own ?? 0))],
    [words.totalTokens, count(tokens.used)],
    [words.took, duration(time.used ?? 0)],
  ];
  if (time.queued) figures.push([words.queued, duration(time.queued)]);
  if (time.asked) figures.push([words.paused, duration(time.asked)]);
  return (
    <Part title={words.usage}>
      <dl className="figures">
        {figures.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}

function Approvals({ detail }: { detail: Detail }) {
  if (!detail.approvals.length) return null;
  const { decided } = words;
  return (
    <Part title={words.approvals}>
      <ul className="lines">
        {detail.approvals.map((each) => {
          const by = each.by || decided.nobody;
          const open = each.agreed === null;
          const word = open ? decided.open : each.agreed ? decided.yes(by) : decided.no(by);
          return (
            <li key={each.id}>
              <Marked text={each.question} />{" "}
              <Badge tone={open ? "ask" : each.agreed ? "good" : "bad"}>{word}</Badge>
              {each.reason ? <span className="soft"> {each.reason}</span> : null}
              {each.edited.length ? (
                <span className="soft"> {decided.edited(each.edited.join(", "))}</span>
              ) : null}
              {open ? (
                <Link href={`/approvals?id=${encodeURIComponent(each.id)}`}> {decided.answer}</Link>
              ) : (
                <Time at={each.answered_ms ?? each.asked_ms} />
              )}
            </li>
          );
        })}
      </ul>
    </Part>
  );
}

function Below({ detail }: { detail: Detail }) {
  if (!detail.calls.length) return null;
  return (
    <Part title={words.calls(detail.calls.length)}>
      <ul className="lines calls">
        {detail.calls.map((each) => (
          <li key={each.path}>
            <State state={each.status ?? "running"} />
            <Link href={`/runs/${detail.run}/d/${each.path}`}>{each.target}</Link>
            {each.code ? <small>{each.code}</small> : null}
            <span className="number">{words.used(count(each.used), count(each.tokens))}</span>
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Tools({ detail }: { detail: Detail }) {
  if (!detail.tools.length) return null;
  return (
    <Part title={words.tools}>
      <ul className="lines">
        {detail.tools.map((use) => (
          <li key={use.seq}>
            <details>
              <summary>
                <code>{use.tool}</code> <span className="soft">{duration(use.duration_ms)}</span>
                {use.replayed ? <Badge>{words.replayed}</Badge> : null}
                {use.fault ? <Badge tone="bad">{use.fault.code}</Badge> : null}
              </summary>
              <Value value={use.input} />
              {use.revealed.length ? <p className="soft">{words.revealed(use.revealed.join(", "))}</p> : null}
              {use.fault ? (
                <p className="soft">
                  <Marked text={use.fault.message} />
                </p>
              ) : null}
            </details>
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Said({ detail }: { detail: Detail }) {
  if (!detail.said.length) return null;
  return (
    <Part title={words.progress}>
      <ul className="lines">
        {detail.said.map((each) => (
          <li key={each.seq} className={each.kind}>
            <Marked text={each.text} />
            {each.code ? <small> {each.code}</small> : null}
          </li>
        ))}
      </ul>
      {detail.left_out > 0 ? <p className="soft">{words.leftOut(detail.left_out)}</p> : null}
    </Part>
  );
}

function Facts({ detail }: { detail: Detail }) {
  const facts: [string, string | null | undefined][] = [
    [words.capability, detail.capability],
    [words.why, detail.shown.reason],
    [words.session, detail.session === detail.path ? null : detail.session],
    [words.correlation, detail.correlation === detail.run ? null : detail.correlation],
    [words.via, detail.via],
    [words.retryOf, detail.retry_of],
  ];
  const known = facts.filter(([, value]) => value);
  if (!known.length) return null;
  return (
    <dl className="facts">
      {known.map(([name, value]) => (
        <div key={name} className="fact">
          <dt>{name}</dt>
          <dd>
            <Marked text={value ?? ""} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
