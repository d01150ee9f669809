// One run: its delegations as a tree and on a time axis, live or played back.

import { ChevronsDownUp, ChevronsUpDown, Keyboard, PauseCircle, Radio } from "lucide-react";
import { useCallback, useDeferredValue, useMemo, useRef, useState } from "react";
import { useLocation, useParams } from "wouter";
import { useKeys } from "@/look/keys";
import { KeysDialog, Loading, Switch, Trouble, useNow } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { DelegationPanel } from "@/views/delegation/DelegationPanel";
import { useActs, useMayAct } from "@/views/run/acts";
import { type Run, useLiveRun } from "@/views/run/live";
import {
  ancestorsOf,
  childrenOf,
  endOf,
  fullPath,
  hasCosts,
  isGoing,
  linesOf,
  ROOT,
  type Row,
  runOfPath,
  search,
  shortPath,
} from "@/views/run/model";
import { Replay } from "@/views/run/Replay";
import { BackToRuns, RunHead } from "@/views/run/RunHead";
import { TreeGrid } from "@/views/run/TreeGrid";
import "./run.css";

const t = texts.runs;

export default function RunView() {
  const params = useParams<{ run: string; "*"?: string }>();
  // Another run begins anew: what is collapsed, held or played back belongs to one run.
  return <OneRun key={params.run} run={params.run} open={params["*"] ?? null} />;
}

function OneRun({ run, open }: { run: string; open: string | null }) {
  const live = useLiveRun(run);
  if (live.error && !live.data)
    return (
      <>
        <BackToRuns />
        <ViewHead title={t.title} />
        <Trouble error={live.error} again={() => void live.refetch()} />
      </>
    );
  if (!live.data)
    return (
      <>
        <BackToRuns />
        <ViewHead title={t.title} />
        <Loading rows={10} />
      </>
    );
  return (
    <Shown
      run={run}
      open={open}
      data={live.data}
      hold={live.hold}
      onHold={live.onHold}
      held={live.held}
      connected={live.connected}
    />
  );
}

interface Props {
  run: string;
  open: string | null;
  data: Run;
  hold: boolean;
  onHold: (hold: boolean) => void;
  held: number;
  connected: boolean;
}

const NAMES: Record<string, string> = { ...texts.states, ...t.states };
const wordOf = (row: Row): string => NAMES[row.state] ?? row.state;

function Shown({ run, open, data, hold, onHold, held, connected }: Props) {
  const { line, rows } = data;
  const [, go] = useLocation();
  const acts = useActs();
  const may = useMayAct();
  const opened = open === null ? null : shortPath(run, open);
  const [active, setActive] = useState(opened ?? ROOT);
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const [failedFirst, setFailedFirst] = useState(false);
  const [text, setText] = useState("");
  const [until, setUntil] = useState<number | null>(null);
  const [playing, setPlaying] = useState(false);
  const [keys, setKeys] = useState(false);
  const searchBox = useRef<HTMLInputElement>(null);

  const going = line.state !== "finished";
  const now = useNow(going ? 1_000 : 60_000);
  const sinceMs = going && !hold ? Math.max(0, now - data.gotAt) : 0;
  const span = useMemo(() => endOf(rows.values(), sinceMs), [rows, sinceMs]);
  const children = useMemo(() => childrenOf(rows.values()), [rows]);
  const wanted = useDeferredValue(text);
  const found = useMemo(() => search(rows, wanted, wordOf), [rows, wanted]);
  // A deep link shows its row, whatever is collapsed above it.
  const hidden = useMemo(() => {
    if (opened === null) return collapsed;
    const above = new Set(ancestorsOf(rows, opened));
    return new Set([...collapsed].filter((path) => !above.has(path)));
  }, [collapsed, opened, rows]);
  const lines = useMemo(
    () => linesOf(rows, children, { collapsed: hidden, failedFirst, search: found, until }),
    [rows, children, hidden, failedFirst, found, until],
  );
  const costs = hasCosts(rows) ? data.currency : null;

  const openRow = useCallback(
    (path: string) => go(`/runs/${run}/d/${encodeURIComponent(fullPath(run, path))}`),
    [go, run],
  );
  const closeRow = useCallback(() => go(`/runs/${run}`), [go, run]);
  const toggle = useCallback((path: string, expanded: boolean) => {
    setCollapsed((before) => {
      const after = new Set(before);
      if (expanded) after.delete(path);
      else after.add(path);
      return after;
    });
  }, []);
  const move = (by: number) => {
    const place = lines.findIndex((each) => each.row.path === active);
    const next = lines[Math.max(0, Math.min(lines.length - 1, place + by))];
    if (next) setActive(next.row.path);
  };
  const sideways = (expand: boolean) => {
    const place = lines.findIndex((each) => each.row.path === active);
    const current = lines[place];
    if (!current) return;
    if (expand && current.expanded === false) toggle(active, true);
    else if (!expand && current.expanded) toggle(active, false);
    else if (expand && current.expanded) move(1);
    else if (!expand && current.row.parent !== null) setActive(current.row.parent);
  };
  const play = () => {
    if (!playing && (until === null || until >= span)) setUntil(0);
    setPlaying(!playing);
  };
  useKeys({
    "/": () => searchBox.current?.focus(),
    "?": () => setKeys(true),
    j: () => move(1),
    k: () => move(-1),
    ArrowLeft: () => sideways(false),
    ArrowRight: () => sideways(true),
    Enter: () => openRow(active),
    Escape: () => (opened === null ? undefined : closeRow()),
    f: () => setFailedFirst(!failedFirst),
    h: () => onHold(!hold),
    p: play,
  });

  const current = rows.get(active);
  const part = opened === null ? undefined : rows.get(opened);
  const full = opened === null ? "" : fullPath(run, opened);
  return (
    <>
      <BackToRuns />
      <RunHead line={line} rows={rows} acts={acts} took={span} currency={data.currency} />
      <div className="run-tools">
        <input
          ref={searchBox}
          type="search"
          className="input"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              setText("");
              event.currentTarget.blur();
            }
          }}
          placeholder={t.findHint}
          aria-label={t.find}
        />
        <span className="soft" role="status">
          {found ? t.hits(found.hits.size, rows.size) : ""}
        </span>
        <Switch checked={failedFirst} onChange={setFailedFirst} label={t.failedFirst} />
        <button
          type="button"
          className="button plain icon"
          aria-label={t.expandAll}
          title={t.expandAll}
          onClick={() => setCollapsed(new Set())}
        >
          <ChevronsUpDown size={16} aria-hidden />
        </button>
        <button
          type="button"
          className="button plain icon"
          aria-label={t.collapseAll}
          title={t.collapseAll}
          onClick={() => {
            setCollapsed(new Set([...children.keys()].filter((path) => path !== ROOT)));
            setActive(ROOT);
          }}
        >
          <ChevronsDownUp size={16} aria-hidden />
        </button>
        {going ? (
          <button type="button" className="button" aria-pressed={!hold} onClick={() => onHold(!hold)}>
            {hold ? <PauseCircle size={14} aria-hidden /> : <Radio size={14} aria-hidden />}
            {t.follow}
          </button>
        ) : null}
        <span className="soft" role="status">
          {hold && held ? t.held(held) : going && !connected ? t.lost : ""}
        </span>
        {part && isGoing(part) && opened !== ROOT && may ? (
          <button
            type="button"
            className="button danger"
            onClick={() => acts.cancel(runOfPath(full), { path: full, agent: part.agent })}
          >
            {t.cancelPart}
          </button>
        ) : null}
        <button
          type="button"
          className="button plain icon keys"
          aria-label={t.showKeys}
          title={t.showKeys}
          onClick={() => setKeys(true)}
        >
          <Keyboard size={16} aria-hidden />
        </button>
      </div>
      <div className={`run-split${opened === null ? "" : " open"}`}>
        <div className="card run-tree">
          <TreeGrid
            lines={lines}
            active={active}
            open={opened}
            hits={found?.hits ?? null}
            span={span}
            until={until}
            sinceMs={sinceMs}
            costs={costs}
            onActive={setActive}
            onOpen={openRow}
            onToggle={toggle}
          />
          <div className="run-legend">
            <span className="key self" aria-hidden /> {t.legendOwn}
            <span className="key" aria-hidden /> {t.legendBelow}
          </div>
          <Replay span={span} until={until} playing={playing} onUntil={setUntil} onPlaying={setPlaying} />
        </div>
        {opened === null ? null : (
          <div className="run-panel">
            <DelegationPanel run={runOfPath(full)} path={full} onClose={closeRow} />
          </div>
        )}
      </div>
      <p className="unseen" aria-live="polite">
        {current ? t.selected(current.agent, wordOf(current)) : ""}
      </p>
      {acts.dialog}
      <KeysDialog open={keys} onClose={() => setKeys(false)} keys={t.runKeys} />
    </>
  );
}
