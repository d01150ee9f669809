// The head of a run: what was asked, how it stands, what it cost, and what can be done with it.

import { useQuery } from "@tanstack/react-query";
import { ArrowLeft } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { count, duration, money } from "@/look/format";
import { Badge, Dialog, Loading, State, Time, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { type Acts, useMayAct } from "@/views/run/acts";
import { ROOT, type Rows, type RunLine } from "@/views/run/model";

type RunList = components["schemas"]["RunList"];

const t = texts.runs;

export const stateOf = (line: RunLine): string => line.status ?? line.state;

export function RunState({ line }: { line: RunLine }) {
  const state = stateOf(line);
  const names: Record<string, string> = { ...texts.states, ...t.states };
  return (
    <span className="row" title={state === "silent" ? t.silentHint : undefined}>
      <State state={state} word={names[state] ?? state} />
      {line.questions ? <Badge tone="ask">{t.questions(line.questions)}</Badge> : null}
    </span>
  );
}

interface Props {
  line: RunLine;
  rows: Rows;
  acts: Acts;
  took: number;
  currency: string;
}

export function RunHead({ line, rows, acts, took, currency }: Props) {
  const may = useMayAct();
  const [comparing, setComparing] = useState(false);
  const over = line.state === "finished";
  const root = rows.get(ROOT);
  const tokens = line.tokens ?? root?.tokens ?? 0;
  const hint = may ? undefined : t.needsControl;
  return (
    <>
      <ViewHead title={line.objective.slice(0, 160) || `${line.agent}: ${t.noObjective}`}>
        <button type="button" className="button" onClick={() => setComparing(true)}>
          {t.compare}
        </button>
        {line.state === "silent" ? (
          <button
            type="button"
            className="button"
            disabled={!may}
            title={hint}
            onClick={() => acts.resume(line.run)}
          >
            {t.resume}
          </button>
        ) : null}
        {over && line.status !== "success" ? (
          <button
            type="button"
            className="button"
            disabled={!may}
            title={hint}
            onClick={() => acts.retry(line.run)}
          >
            {t.retry}
          </button>
        ) : null}
        {over ? null : (
          <button
            type="button"
            className="button danger"
            disabled={!may}
            title={hint}
            onClick={() => acts.cancel(line.run)}
          >
            {t.cancelRun}
          </button>
        )}
      </ViewHead>
      <div className="run-facts">
        <RunState line={line} />
        <span className="agent">{line.agent}</span>
        <Fact name={t.facts.user} value={line.user} />
        <span className="soft">
          {t.facts.started} <Time at={line.started_ms} />
        </span>
        <Fact name={t.facts.took} value={duration(line.duration_ms ?? took)} />
        <Fact name={t.facts.delegations} value={count(rows.size)} />
        {tokens ? <Fact name={t.facts.tokens} value={count(tokens)} /> : null}
        {root?.cost ? <Fact name={t.facts.cost} value={money(root.cost, currency)} /> : null}
        {line.via ? <Fact name={t.facts.via} value={line.via} /> : null}
        {line.session && line.session !== line.run ? (
          <Link href={`/sessions/${encodeURIComponent(line.session)}`}>{t.facts.session}</Link>
        ) : null}
        {line.correlation && line.correlation !== line.run ? (
          <Link href={`/runs?correlation=${encodeURIComponent(line.correlation)}`}>
            {t.facts.correlation}
          </Link>
        ) : null}
      </div>
      {line.code ? (
        <p className="run-error">
          <Badge tone="bad">{line.code}</Badge> {root?.note}
        </p>
      ) : null}
      {line.preview && over ? (
        <details className="run-answer">
          <summary>{t.facts.answer}</summary>
          <p className="said">{line.preview}</p>
        </details>
      ) : null}
      <nav className="tabs" aria-label={t.title}>
        <Link href={`/runs/${line.run}`} className="tab" aria-current="page">
          {t.tabs.delegations}
        </Link>
        <Link href={`/runs/${line.run}/workflow`} className="tab">
          {t.tabs.workflow}
        </Link>
      </nav>
      <Dialog open={comparing} onClose={() => setComparing(false)} title={t.compareWith}>
        {comparing ? <Others line={line} /> : null}
      </Dialog>
    </>
  );
}

export function BackToRuns() {
  return (
    <Link href="/runs" className="run-back">
      <ArrowLeft size={14} aria-hidden />
      {t.back}
    </Link>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <span className="soft">
      {name} <b>{value}</b>
    </span>
  );
}

/** Other runs of the same agent, to compare with. */
function Others({ line }: { line: RunLine }) {
  const query = useQuery({
    queryKey: ["runs", "others", line.agent],
    queryFn: ({ signal }) => get<RunList>("/v1/runs", { agent: line.agent, limit: 20 }, signal),
  });
  if (query.error) return <Trouble error={query.error} />;
  if (!query.data) return <Loading rows={4} />;
  const others = query.data.runs.filter((each) => each.run !== line.run);
  if (others.length === 0) return <p className="soft">{t.compareNone}</p>;
  return (
    <ul className="run-others">
      {others.map((each) => (
        <li key={each.run}>
          <Link href={`/compare/${line.run}/${each.run}`} className="row">
            <RunState line={each} />
            <span className="one-line">{each.objective || t.noObjective}</span>
            <Time at={each.started_ms} />
          </Link>
        </li>
      ))}
    </ul>
  );
}
