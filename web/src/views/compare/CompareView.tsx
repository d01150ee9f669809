// Two runs side by side, and what differs.

import { useVirtualizer } from "@tanstack/react-virtual";
import { diffWordsWithSpace } from "diff";
import { type CSSProperties, useMemo, useRef, useState } from "react";
import { Link, useParams } from "wouter";
import { count, duration, shortCount } from "@/look/format";
import { Badge, Empty, Loading, State, Switch, Time, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { type Change, delta, type Pair, pairsOf } from "@/views/compare/diff";
import { type Run, useRun } from "@/views/run/live";
import { fullPath, type Row } from "@/views/run/model";
import { BackToRuns, RunState } from "@/views/run/RunHead";
import "@/views/run/run.css";
import "./compare.css";

const t = texts.runs;
const ROW_PX = 44;
const TONES = { same: "calm", changed: "warn", added: "good", removed: "bad" } as const;
const NAMES: Record<string, string> = { ...texts.states, ...t.states };

export default function CompareView() {
  const { a, b } = useParams<{ a: string; b: string }>();
  const first = useRun(a);
  const second = useRun(b);
  const error = first.error ?? second.error;
  return (
    <>
      <BackToRuns />
      <ViewHead title={t.compareTitle}>
        <Link href={`/compare/${b}/${a}`} className="button">
          {t.swap}
        </Link>
      </ViewHead>
      {error ? (
        <Trouble error={error} />
      ) : first.data && second.data ? (
        <Both first={first.data} second={second.data} />
      ) : (
        <Loading rows={10} />
      )}
    </>
  );
}

function Both({ first, second }: { first: Run; second: Run }) {
  const [only, setOnly] = useState(true);
  const pairs = useMemo(() => pairsOf(first.rows, second.rows), [first.rows, second.rows]);
  const shown = useMemo(() => (only ? pairs.filter((pair) => pair.change !== "same") : pairs), [only, pairs]);
  const different = pairs.filter((pair) => pair.change !== "same").length;
  return (
    <>
      <div className="compare-heads">
        <Head name={t.first} run={first} />
        <Head name={t.second} run={second} />
      </div>
      {first.line.preview !== second.line.preview ? (
        <section className="card" aria-label={t.answers}>
          <div className="head">
            <h2>{t.answers}</h2>
          </div>
          <p className="body said">
            <Words before={first.line.preview} after={second.line.preview} />
          </p>
        </section>
      ) : null}
      <div className="row">
        <Switch checked={only} onChange={setOnly} label={t.onlyDifferent} />
        <span className="soft" role="status">
          {t.differing(different, pairs.length)}
        </span>
      </div>
      {shown.length === 0 ? <Empty title={t.same} /> : <Table pairs={shown} first={first} second={second} />}
    </>
  );
}

function Head({ name, run }: { name: string; run: Run }) {
  const { line } = run;
  return (
    <section className="card" aria-label={name}>
      <div className="head">
        <h2>{name}</h2>
        <RunState line={line} />
        {line.code ? <Badge tone="bad">{line.code}</Badge> : null}
      </div>
      <div className="body stack">
        <Link href={`/runs/${line.run}`}>{line.objective || t.noObjective}</Link>
        <div className="run-facts soft">
          <span>{line.agent}</span>
          <span>{line.user}</span>
          <Time at={line.started_ms} />
          <span>{line.duration_ms == null ? "" : duration(line.duration_ms)}</span>
          <span>{line.tokens ? `${t.facts.tokens} ${count(line.tokens)}` : ""}</span>
          <span>{`${t.facts.delegations} ${count(run.rows.size)}`}</span>
        </div>
      </div>
    </section>
  );
}

function Words({ before = "", after = "" }: { before?: string | undefined; after?: string | undefined }) {
  const parts = useMemo(() => diffWordsWithSpace(before, after), [before, after]);
  return parts.map((part, i) => {
    if (part.added) return <ins key={i}>{part.value}</ins>;
    if (part.removed) return <del key={i}>{part.value}</del>;
    return <span key={i}>{part.value}</span>;
  });
}

function Table({ pairs, first, second }: { pairs: Pair[]; first: Run; second: Run }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: pairs.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 10,
  });
  const height: CSSProperties = { height: virtual.getTotalSize() };
  return (
    <div
      className="card compare-table"
      ref={scroller}
      role="grid"
      tabIndex={0}
      aria-label={t.compareTitle}
      aria-rowcount={pairs.length + 1}
    >
      <div className="compare-row titles" role="row" aria-rowindex={1}>
        <div role="columnheader">{t.change}</div>
        <div role="columnheader">{t.delegation}</div>
        <div role="columnheader">{t.first}</div>
        <div role="columnheader">{t.second}</div>
        <div role="columnheader" className="number" title={t.delta}>
          {t.columns.took}
        </div>
      </div>
      <div className="run-rows" role="rowgroup" style={height}>
        {virtual.getVirtualItems().map((item) => {
          const pair = pairs[item.index];
          const top: CSSProperties = { transform: `translateY(${item.start}px)` };
          return pair ? (
            <div className="compare-row" role="row" aria-rowindex={item.index + 2} key={item.key} style={top}>
              <div role="gridcell">
                <Mark change={pair.change} />
              </div>
              <div role="gridcell" className="what">
                <b className="one-line">{(pair.first ?? pair.second)?.agent}</b>
                <span className="one-line soft">{(pair.first ?? pair.second)?.objective}</span>
              </div>
              <Side row={pair.first} run={first} />
              <Side row={pair.second} run={second} />
              <div role="gridcell" className="number soft">
                {pair.first && pair.second ? (
                  <>
                    <div>{delta(pair.first.took, pair.second.took, duration)}</div>
                    <div>{delta(pair.first.tokens, pair.second.tokens, shortCount)}</div>
                  </>
                ) : null}
              </div>
            </div>
          ) : null;
        })}
      </div>
    </div>
  );
}

function Mark({ change }: { change: Change }) {
  return <Badge tone={TONES[change]}>{t.changes[change]}</Badge>;
}

function Side({ row, run }: { row: Row | null; run: Run }) {
  if (!row) return <div role="gridcell" className="side" />;
  const href = `/runs/${run.line.run}/d/${encodeURIComponent(fullPath(run.line.run, row.path))}`;
  return (
    <div role="gridcell" className="side">
      <Link href={href} aria-label={`${row.agent}, ${NAMES[row.state] ?? row.state}`} title={row.note}>
        <State state={row.state} word={NAMES[row.state] ?? row.state} />
      </Link>
      <span className="soft one-line">
        {duration(row.took)}
        {row.tokens ? ` · ${shortCount(row.tokens)}` : ""}
        {row.code ? ` · ${row.code}` : ""}
      </span>
    </div>
  );
}
