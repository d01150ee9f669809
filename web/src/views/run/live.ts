// A run with its delegations, kept up to date while it is at work.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { get } from "@/api/client";
import { follow } from "@/api/stream";
import { merged, type Rows, rowsOf, type RunLine, type RunTable } from "@/views/run/model";

export interface Run {
  line: RunLine;
  rows: Rows;
  seq: number;
  /** Of all costs. */
  currency: string;
  /** When this page got it, by the clock of this page. */
  gotAt: number;
}

const keyOf = (run: string) => ["runs", run, "tree"];
// A person sees no more than a few changes in a second.
const EVERY_MS = 400;
// Parts of the run at other hubs are not in its stream of events.
const LOOK_MS = 5_000;

const treeOf = (run: string, after: number, signal?: AbortSignal) =>
  get<RunTable>(`/v1/runs/${encodeURIComponent(run)}/tree`, after ? { after } : {}, signal);

const whole = (table: RunTable): Run => ({
  line: table.run,
  rows: new Map(rowsOf(table.delegations).map((row) => [row.path, row])),
  seq: table.seq,
  currency: table.currency,
  gotAt: Date.now(),
});

const changed = (known: Run, table: RunTable): Run => ({
  line: table.run,
  rows: merged(known.rows, rowsOf(table.delegations)),
  seq: table.seq,
  currency: table.currency,
  gotAt: Date.now(),
});

/** Read a run once. */
export function useRun(run: string) {
  return useQuery({
    queryKey: keyOf(run),
    queryFn: async ({ signal }) => whole(await treeOf(run, 0, signal)),
    refetchOnWindowFocus: false,
    // Ten thousand delegations are not kept for a page that nobody looks at.
    gcTime: 60_000,
  });
}

/** Read a run and follow it, unless it is held; tells how many changes are held back, and whether it is connected. */
export function useLiveRun(run: string) {
  const query = useRun(run);
  const client = useQueryClient();
  const [held, setHeld] = useState(0);
  const [connected, setConnected] = useState(true);
  const [hold, setHold] = useState(false);
  const holding = useRef(false);
  const refresh = useRef<() => void>(() => undefined);
  const loaded = query.data !== undefined;
  const isOver = query.data?.line.state === "finished";

  useEffect(() => {
    if (!loaded) return;
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asking = false;
    let events = 0;
    const update = async () => {
      timer = undefined;
      const known = client.getQueryData<Run>(keyOf(run));
      if (!known || asking) return;
      asking = true;
      const before = events;
      try {
        const table = await treeOf(run, known.seq, ending.signal);
        client.setQueryData<Run>(keyOf(run), (current) => current && changed(current, table));
      } catch {
        // The next change tries again; the stream says whether the server is there.
      }
      asking = false;
      if (events !== before) soon();
    };
    const soon = () => {
      events += 1;
      if (holding.current) setHeld((count) => count + 1);
      else if (!asking) timer ??= setTimeout(() => void update(), EVERY_MS);
    };
    refresh.current = () => void update();
    const known = client.getQueryData<Run>(keyOf(run));
    const leave = follow(
      "/v1/events",
      { run, form: "runs", after: known?.seq },
      {
        onEvent: (event) => {
          if (event.type !== "ready") soon();
        },
        onState: setConnected,
      },
    );
    const looking = isOver
      ? undefined
      : setInterval(() => {
          if (!holding.current) void update();
        }, LOOK_MS);
    return () => {
      leave();
      ending.abort();
      clearTimeout(timer);
      clearInterval(looking);
    };
  }, [client, run, loaded, isOver]);

  const onHold = useCallback((wanted: boolean) => {
    holding.current = wanted;
    setHold(wanted);
    setHeld(0);
    if (!wanted) refresh.current();
  }, []);
  return { ...query, hold, onHold, held, connected };
}
