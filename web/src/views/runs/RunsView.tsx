// All runs: searched, filtered by the address, and live.

import { useInfiniteQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { Keyboard } from "lucide-react";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { follow } from "@/api/stream";
import { count, counted, duration, shortCount } from "@/look/format";
import { useKeys } from "@/look/keys";
import { Badge, Empty, KeysDialog, Loading, Time, Trouble, useNow } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import type { RunLine } from "@/views/run/model";
import { RunState } from "@/views/run/RunHead";
import { FilterBar } from "@/views/runs/FilterBar";
import { areEmpty, askedOf, type Filters, filtersIn, freshened, queryOf } from "@/views/runs/filters";
import "./runs.css";

type RunList = components["schemas"]["RunList"];
type Pages = InfiniteData<RunList, string>;

const t = texts.runs;
const PER_PAGE = 100;
// A list that changes more often cannot be read.
const EVERY_MS = 1_000;
// Whoever has scrolled further reads something, and the list does not move below their eyes.
const AT_TOP_PX = 80;

export default function RunsView() {
  const query = useSearch();
  const [, go] = useLocation();
  const filters = useMemo(() => filtersIn(query), [query]);
  const onFilters = (wanted: Filters) => {
    const text = queryOf(wanted);
    go(text ? `/runs?${text}` : "/runs", { replace: true });
  };
  const searchBox = useRef<HTMLInputElement>(null);
  const [keys, setKeys] = useState(false);
  const runs = useRuns(filters);
  const lines = runs.lines;
  const table = useRef<HTMLTableElement>(null);

  const links = () => [...(table.current?.querySelectorAll<HTMLAnchorElement>("a.run") ?? [])];
  const move = (by: number) => {
    const all = links();
    const place = all.findIndex((each) => each === document.activeElement);
    all[place < 0 ? 0 : Math.max(0, Math.min(all.length - 1, place + by))]?.focus();
  };
  useKeys({
    "/": () => searchBox.current?.focus(),
    "?": () => setKeys(true),
    j: () => move(1),
    k: () => move(-1),
  });
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    }
  };

  return (
    <>
      <ViewHead title={t.title}>
        <span className={`runs-live${runs.connected ? "" : " lost"}`} role="status">
          {runs.connected ? t.live : t.lost}
        </span>
        <button
          type="button"
          className="button plain icon"
          aria-label={t.showKeys}
          title={t.showKeys}
          onClick={() => setKeys(true)}
        >
          <Keyboard size={16} aria-hidden />
        </button>
      </ViewHead>
      <FilterBar filters={filters} onFilters={onFilters} searchBox={searchBox} />
      <div className="runs-new" aria-live="polite">
        {runs.fresh ? (
          <button type="button" className="button main" onClick={runs.show}>
            {t.fresh(runs.fresh)}
          </button>
        ) : null}
      </div>
      {runs.error ? (
        <Trouble error={runs.error} again={() => void runs.refetch()} />
      ) : lines === null ? (
        <Loading rows={12} />
      ) : lines.length === 0 && !runs.hasNextPage ? (
        areEmpty(filters) ? (
          <Empty title={t.none} command={t.noneCommand}>
            <p>{t.noneHint}</p>
          </Empty>
        ) : (
          <Empty title={t.noneFound} command={t.noneFoundCommand}>
            <p>{t.noneFoundHint}</p>
          </Empty>
        )
      ) : (
        <>
          <div className="card table-wrap">
            {/* Arrows move between the links of the rows, as j and k do. */}
            {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions */}
            <table className="table runs-table" ref={table} onKeyDown={pressed}>
              <caption className="unseen">{t.list}</caption>
              <Head />
              <tbody>
                {lines.map((line) => (
                  <RunRow key={line.run} line={line} />
                ))}
              </tbody>
            </table>
          </div>
          <div className="row spread">
            <span className="soft">
              {t.found(lines.length, runs.hasNextPage)}
              {runs.hasNextPage && runs.searched > lines.length ? ` · ${t.searchedSoFar(runs.searched)}` : ""}
            </span>
            {runs.hasNextPage ? (
              <button type="button" className="button" disabled={runs.isFetching} onClick={runs.older}>
                {runs.searched > lines.length ? t.goOn : texts.common.more}
              </button>
            ) : null}
          </div>
        </>
      )}
      <KeysDialog open={keys} onClose={() => setKeys(false)} keys={t.keys} />
    </>
  );
}

/** The runs that fit the filters, with those that begin meanwhile. */
function useRuns(filters: Filters) {
  const client = useQueryClient();
  const minute = Math.floor(useNow(60_000) / 60_000);
  const until = filters.since ? minute * 60_000 : 0;
  const asked = useMemo(() => askedOf(filters, until), [filters, until]);
  const key = useMemo(() => ["runs", "list", asked], [asked]);
  const [connected, setConnected] = useState(true);
  const [fresh, setFresh] = useState(0);
  const update = useRef<() => Promise<void>>(() => Promise.resolve());
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) =>
      get<RunList>("/v1/runs", { ...asked, before: pageParam, limit: PER_PAGE }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (before) => before,
    refetchOnWindowFocus: false,
  });

  useEffect(() => {
    const began = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    update.current = async () => {
      timer = undefined;
      began.clear();
      setFresh(0);
      try {
        const first = await get<RunList>("/v1/runs", { ...asked, limit: PER_PAGE });
        client.setQueryData<Pages>(key, (known) => known && withFirst(known, first));
      } catch {
        // The stream says whether the server is there, and the next change tries again.
      }
    };
    const leave = follow(
      "/v1/events",
      { form: "runs" },
      {
        onEvent: (event) => {
          if (event.type === "ready") return;
          const change = event.data as { run?: string; began?: boolean };
          if (change.began && change.run) began.add(change.run);
          if (scrollY > AT_TOP_PX) setFresh(began.size);
          else timer ??= setTimeout(() => void update.current(), EVERY_MS);
        },
        onState: setConnected,
      },
    );
    return () => {
      leave();
      clearTimeout(timer);
    };
  }, [client, key, asked]);

  const pages = query.data?.pages;
  return {
    lines: useMemo(() => (pages ? unique(pages.flatMap((page) => page.runs)) : null), [pages]),
    searched: (pages ?? []).reduce((sum, page) => sum + page.searched, 0),
    error: pages ? null : query.error,
    hasNextPage: query.hasNextPage,
    isFetching: query.isFetching,
    older: () => void query.fetchNextPage(),
    refetch: query.refetch,
    connected,
    fresh,
    show: () => {
      scrollTo({ top: 0 });
      void update.current();
    },
  };
}

function withFirst(known: Pages, first: RunList): Pages {
  const [old, ...rest] = known.pages;
  if (!old) return known;
  return { ...known, pages: [{ ...old, runs: freshened(old.runs, first.runs) }, ...rest] };
}

function unique(lines: RunLine[]): RunLine[] {
  return [...new Map(lines.map((line) => [line.run, line])).values()];
}

function Head() {
  return (
    <thead>
      <tr>
        <th scope="col">{t.columns.run}</th>
        <th scope="col">{t.columns.state}</th>
        <th scope="col" className="wide">
          {t.columns.agent}
        </th>
        <th scope="col" className="wide">
          {t.columns.user}
        </th>
        <th scope="col" className="wide">
          {t.columns.started}
        </th>
        <th scope="col" className="number">
          {t.columns.took}
        </th>
        <th scope="col" className="number wide">
          {t.columns.tokens}
        </th>
      </tr>
    </thead>
  );
}

function RunRow({ line }: { line: RunLine }) {
  return (
    <tr>
      <td className="what">
        <Link href={`/runs/${line.run}`} className="run one-line">
          {line.objective || t.noObjective}
        </Link>
        <div className="below one-line faint">
          <span className="narrow">
            {line.agent} · {line.user} · <Time at={line.started_ms} />{" "}
          </span>
          {line.preview}
        </div>
      </td>
      <td>
        <RunState line={line} />
        {line.code ? (
          <div className="code">
            <Badge tone="bad">{line.code}</Badge>
          </div>
        ) : null}
      </td>
      <td className="wide">{line.agent}</td>
      <td className="wide">
        {line.user}
        {line.via ? <div className="faint">{t.via(line.via)}</div> : null}
      </td>
      <td className="wide">
        <Time at={line.started_ms} />
      </td>
      <td className="number">{line.duration_ms == null ? "" : duration(line.duration_ms)}</td>
      <td className="number wide" title={line.tokens ? count(line.tokens) : undefined}>
        {line.tokens ? shortCount(line.tokens) : ""}
        {line.cost ? <div className="faint">{counted(line.cost)}</div> : null}
      </td>
    </tr>
  );
}
