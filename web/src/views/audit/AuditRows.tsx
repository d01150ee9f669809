// The rows of the record in a list that holds only what is seen.

import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { get, type Query } from "@/api/client";
import type { components } from "@/api/operator";
import { clockTime, exactTime } from "@/look/format";
import { useKeys } from "@/look/keys";
import { Badge, Empty, Loading, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { agentOf, codeOf, type RecordLine, sentenceOf, toneOfRow } from "./rows";

type Found = components["schemas"]["FoundRecords"];

const said = texts.audit;
const ADDRESS = "/v1/audit/search";
const ROW_PX = 30;
const PER_PAGE = 200;
const LOOK_AGAIN_MS = 5_000;

interface Props {
  filter: Query;
  filtered: boolean;
  chosen: number | null;
  choose: (seq: number | null) => void;
}

export function AuditRows({ filter, filtered, chosen, choose }: Props) {
  const query = useInfiniteQuery({
    queryKey: ["audit", "rows", filter],
    queryFn: ({ pageParam, signal }) =>
      get<Found>(ADDRESS, { ...filter, limit: PER_PAGE, before: pageParam }, signal),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.records) ?? [], [query.data]);
  if (query.isPending) return <Loading rows={10} />;
  if (query.isError && !query.data) return <Trouble error={query.error} again={() => void query.refetch()} />;
  const more = query.hasNextPage;
  return (
    <section className="audit-rows">
      <NewRows filter={filter} newest={rows[0]?.seq ?? 0} />
      {rows.length === 0 && !more ? (
        filtered ? (
          <Empty title={said.noneFound} />
        ) : (
          <Empty title={said.none} command={said.noneCommand}>
            <p>{said.noneHint}</p>
          </Empty>
        )
      ) : (
        <List
          rows={rows}
          chosen={chosen}
          choose={choose}
          more={more && !query.isFetchingNextPage ? query.fetchNextPage : null}
        />
      )}
      <p className="faint audit-end" aria-live="polite">
        {query.isFetchingNextPage ? said.searching : null}
        {!more && rows.length ? said.end(rows.length) : null}
      </p>
    </section>
  );
}

/** Says that rows have come since the list was read; they are shown when a person wants them. */
function NewRows({ filter, newest }: { filter: Query; newest: number }) {
  const queries = useQueryClient();
  const query = useQuery({
    queryKey: ["audit", "newest", filter],
    queryFn: ({ signal }) => get<Found>(ADDRESS, { ...filter, limit: 100 }, signal),
    refetchInterval: LOOK_AGAIN_MS,
  });
  const fresh = query.data?.records.filter((each) => each.seq > newest).length ?? 0;
  if (!fresh) return null;
  return (
    <button
      type="button"
      className="button audit-new"
      onClick={() => void queries.resetQueries({ queryKey: ["audit", "rows", filter] })}
    >
      {said.newRows(fresh)} · {said.showNew}
    </button>
  );
}

function List({
  rows,
  chosen,
  choose,
  more,
}: {
  rows: RecordLine[];
  chosen: number | null;
  choose: (seq: number | null) => void;
  more: (() => unknown) | null;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= rows.length - 1) more();
  }, [more, last, rows.length]);
  const step = useCallback(
    (by: number) => {
      const at = rows.findIndex((each) => each.seq === chosen);
      const next = Math.min(Math.max(at < 0 ? 0 : at + by, 0), rows.length - 1);
      const row = rows[next];
      if (!row) return;
      virtual.scrollToIndex(next);
      choose(row.seq);
    },
    [rows, chosen, choose, virtual],
  );
  useKeys({ j: () => step(1), k: () => step(-1), Escape: () => choose(null) });
  return (
    <div className="card audit-table" role="table" aria-label={said.rows} aria-rowcount={-1}>
      <div role="rowgroup">
        <div className="audit-row audit-names" role="row">
          <span role="columnheader">{said.row}</span>
          <span role="columnheader">{said.time}</span>
          <span role="columnheader">{said.kind}</span>
          <span role="columnheader">{said.agent}</span>
          <span role="columnheader">{said.what}</span>
        </div>
      </div>
      {/* A list that scrolls must be reachable without a mouse. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <div className="audit-scroll" ref={scroller} role="rowgroup" tabIndex={0} aria-label={said.rows}>
        <div className="audit-space" style={{ height: virtual.getTotalSize() }} role="presentation">
          {items.map((item) => {
            const record = rows[item.index];
            if (!record) return null;
            return (
              <Row
                key={record.seq}
                record={record}
                place={item.index + 2}
                top={item.start}
                chosen={record.seq === chosen}
                choose={choose}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Row({
  record,
  place,
  top,
  chosen,
  choose,
}: {
  record: RecordLine;
  place: number;
  top: number;
  chosen: boolean;
  choose: (seq: number) => void;
}) {
  const code = codeOf(record);
  return (
    <div
      className={chosen ? "audit-row chosen" : "audit-row"}
      role="row"
      aria-rowindex={place}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span role="cell">
        <button
          type="button"
          className="audit-seq"
          aria-current={chosen ? "true" : undefined}
          onClick={() => choose(record.seq)}
        >
          {record.seq}
        </button>
      </span>
      <span role="cell" className="soft">
        <time dateTime={new Date(record.at_ms).toISOString()} title={exactTime(record.at_ms)}>
          {clockTime(record.at_ms)}
        </time>
      </span>
      <span role="cell">
        <Badge tone={toneOfRow(record)}>{said.kinds[record.kind] ?? record.kind}</Badge>
      </span>
      <span role="cell" className="one-line">
        {agentOf(record)}
      </span>
      <span role="cell" className="one-line">
        {code ? <code className="audit-code">{code}</code> : null} {sentenceOf(record)}
      </span>
    </div>
  );
}
