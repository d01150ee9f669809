// The delegations of a run as one tree grid: the tree, its figures, and when each was at work.

import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronDown, ChevronRight } from "lucide-react";
import { type CSSProperties, type KeyboardEvent, memo, useEffect, useMemo, useRef } from "react";
import { duration, shortCount, money, count } from "@/look/format";
import { State } from "@/look/parts";
import { texts } from "@/texts";
import { barOf, type Line, type Row, rowAt, ticksOf } from "@/views/run/model";

const t = texts.runs;
const ROW_PX = 30;
// Fewer beside an open panel, where the axis is narrow.
const TICKS = 5;
const FEW_TICKS = 2;

interface Props {
  lines: Line[];
  /** The path of the row that the keyboard is at. */
  active: string;
  /** The path whose panel is open. */
  open: string | null;
  hits: ReadonlySet<string> | null;
  span: number;
  until: number | null;
  /** Milliseconds since the figures were read, by which those at work have gone on. */
  sinceMs: number;
  /** The currency of the costs; null: no price is known. */
  costs: string | null;
  onActive: (path: string) => void;
  onOpen: (path: string) => void;
  onToggle: (path: string, expanded: boolean) => void;
}

const idOf = (path: string): string => `d-${path}`;

export function TreeGrid(props: Props) {
  const { lines, active, span, until, sinceMs, costs, onActive, onOpen, onToggle } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const place = useMemo(() => lines.findIndex((line) => line.row.path === active), [lines, active]);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 6,
    // Rows are drawn with the next frame: a person sees no difference, and a frame is never missed for it.
    useFlushSync: false,
    // The head of the columns stays above the rows.
    scrollPaddingStart: ROW_PX,
  });
  const items = virtual.getVirtualItems();

  // A row is scrolled to before it is pointed at: what is not there cannot be announced.
  useEffect(() => {
    if (place >= 0) virtual.scrollToIndex(place, { align: "auto" });
    // Only when the row changes, not whenever lines come and go around it.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [active]);
  const isThere = items.some((item) => item.index === place);

  const step = (by: number) => {
    const next = lines[Math.max(0, Math.min(lines.length - 1, place + by))];
    if (next) onActive(next.row.path);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const line = lines[place];
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / ROW_PX) - 2);
    const moves: Record<string, () => void> = {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      PageDown: () => step(page),
      PageUp: () => step(-page),
      Home: () => step(-lines.length),
      End: () => step(lines.length),
      Enter: () => line && onOpen(line.row.path),
    };
    const move = moves[event.key];
    if (move) {
      event.preventDefault();
      move();
    }
  };

  const height: CSSProperties = { height: virtual.getTotalSize() };
  const columns = costs ? 6 : 5;
  return (
    <div
      ref={scroller}
      className={`run-grid${costs ? " with-costs" : ""}`}
      role="treegrid"
      tabIndex={0}
      aria-label={t.grid}
      aria-rowcount={lines.length + 1}
      aria-colcount={columns}
      aria-activedescendant={isThere ? idOf(active) : undefined}
      onKeyDown={pressed}
    >
      <div className="run-row head" role="row" aria-rowindex={1}>
        <div role="columnheader">{t.delegation}</div>
        <div role="columnheader">{t.outcome}</div>
        <div role="columnheader" className="axis" aria-label={t.timeAxis}>
          {ticksOf(span, props.open === null ? TICKS : FEW_TICKS).map((tick) => {
            const left: CSSProperties = { left: `${(tick / span) * 100}%` };
            return (
              <span key={tick} style={left}>
                {duration(tick)}
              </span>
            );
          })}
        </div>
        <div role="columnheader" className="number" title={t.time}>
          {t.columns.took}
        </div>
        <div role="columnheader" className="number tokens" title={t.tokens}>
          {t.columns.tokens}
        </div>
        {costs ? (
          <div role="columnheader" className="number cost" title={t.cost}>
            {t.columns.cost}
          </div>
        ) : null}
      </div>
      <div className="run-rows" role="rowgroup" style={height}>
        {items.map((item) => {
          const line = lines[item.index];
          return line ? (
            <GridRow
              key={line.row.path}
              line={line}
              index={item.index}
              top={item.start}
              isActive={line.row.path === active}
              isOpen={line.row.path === props.open}
              isHit={props.hits?.has(line.row.path) ?? false}
              row={rowAt(line.row, until, sinceMs)}
              span={span}
              costs={costs}
              onActive={onActive}
              onOpen={onOpen}
              onToggle={onToggle}
            />
          ) : null;
        })}
      </div>
    </div>
  );
}

interface RowProps {
  line: Line;
  row: Row;
  index: number;
  top: number;
  isActive: boolean;
  isOpen: boolean;
  isHit: boolean;
  span: number;
  /** The currency of the costs; null: no price is known. */
  costs: string | null;
  onActive: (path: string) => void;
  onOpen: (path: string) => void;
  onToggle: (path: string, expanded: boolean) => void;
}

const GridRow = memo(function GridRow(props: RowProps) {
  const { line, row, index, top, span, costs } = props;
  const at: CSSProperties = { transform: `translateY(${top}px)` };
  const indent: CSSProperties = { paddingLeft: `${Math.min(line.level - 1, 20) * 14}px` };
  const classes = ["run-row", props.isActive && "active", props.isOpen && "open", props.isHit && "hit"];
  const Chevron = line.expanded ? ChevronDown : ChevronRight;
  const names: Record<string, string> = { ...texts.states, ...t.states };
  return (
    // The keys of the grid do the same for the row that it points at.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus
    <div
      id={idOf(row.path)}
      className={classes.filter(Boolean).join(" ")}
      role="row"
      style={at}
      aria-level={line.level}
      aria-posinset={line.place}
      aria-setsize={line.siblings}
      aria-expanded={line.expanded}
      aria-rowindex={index + 2}
      aria-selected={props.isOpen}
      onClick={() => {
        props.onActive(row.path);
        props.onOpen(row.path);
      }}
    >
      <div role="gridcell" className="name" style={indent}>
        {line.expanded === undefined ? (
          <span className="leaf" />
        ) : (
          <button
            type="button"
            tabIndex={-1}
            className="toggle"
            aria-label={line.expanded ? t.collapse(row.agent) : t.expand(row.agent)}
            onClick={(event) => {
              event.stopPropagation();
              props.onActive(row.path);
              props.onToggle(row.path, !line.expanded);
            }}
          >
            <Chevron size={14} aria-hidden />
          </button>
        )}
        <span className="agent">{row.agent}</span>
        <span
          className="objective one-line"
          title={[row.objective, row.code, row.note].filter(Boolean).join("\n")}
        >
          {row.note || row.objective || row.capability}
        </span>
      </div>
      <div role="gridcell" className="state" title={row.code}>
        <State state={row.state} word={names[row.state] ?? row.state} />
      </div>
      <div role="gridcell" className="axis">
        <Bar row={row} span={span} />
      </div>
      <Figures own={row.own} all={row.took} show={duration} />
      <Figures own={row.ownTokens} all={row.tokens} show={shortCount} exact={count} className="tokens" />
      {costs ? (
        <div
          role="gridcell"
          className="number cost"
          title={t.ownTip(money(row.ownCost ?? 0, costs), money(row.cost ?? 0, costs))}
        >
          {row.cost ? money(row.cost, costs) : ""}
        </div>
      ) : null}
    </div>
  );
});

function Bar({ row, span }: { row: Row; span: number }) {
  const { left, width, own } = barOf(row, span);
  const bar: CSSProperties = { left: `${left}%`, width: `${width}%` };
  const self: CSSProperties = { width: `${own * 100}%` };
  const tone = row.state === "running" || row.state === "waiting" ? " going" : "";
  return (
    <span
      className={`bar${tone}`}
      style={bar}
      title={t.bar(duration(row.started), duration(row.took), duration(row.own))}
    >
      <span className={`self ${row.state}`} style={self} />
    </span>
  );
}

function Figures({
  own,
  all,
  show,
  exact = show,
  className = "",
}: {
  own: number;
  all: number;
  show: (value: number) => string;
  exact?: (value: number) => string;
  className?: string;
}) {
  if (all === 0) return <div role="gridcell" className={`number ${className}`} />;
  return (
    <div role="gridcell" className={`number ${className}`} title={t.ownTip(exact(own), exact(all))}>
      {own === all ? null : <span className="own">{show(own)}</span>}
      <span>{show(all)}</span>
    </div>
  );
}
