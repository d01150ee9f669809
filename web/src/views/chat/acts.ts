// Reading a run, and acting on it.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { act, get } from "@/api/client";
import { useConsole } from "@/api/console";
import { useAnnounce } from "@/look/announce";
import { type ActName, type KnownRun, mark, offer, type Run, useShared } from "@/views/chat/store";

export const pathOf = (run: string): string => `/v1/shared/runs/${encodeURIComponent(run)}`;

async function load(run: string): Promise<Run> {
  const since = mark(run);
  const view = await get<Run>(pathOf(run));
  offer(view, since);
  return view;
}

/** A run: from the stream, or read once if that does not tell of it (it has ended). */
export function useRun(run: string): { known: KnownRun | undefined; error: unknown; again: () => void } {
  const known = useShared(({ runs }) => runs.get(run));
  const ready = useShared((state) => state.ready);
  const epoch = useShared((state) => state.epoch);
  const query = useQuery({
    queryKey: ["shared", "run", run, epoch],
    queryFn: () => load(run),
    enabled: ready && (!known || known.stale),
    gcTime: 0,
  });
  return { known, error: known ? null : query.error, again: () => void query.refetch() };
}

export interface Acting {
  busy: ActName | "";
  /** Whether an act is possible now. */
  may: (name: ActName) => boolean;
  /** Do it; the promise says whether it was done. */
  act: (name: ActName, body?: Record<string, unknown>) => Promise<boolean>;
}

/** What a person can do with a run. A refusal is said as a note. */
export function useActing(run: Run): Acting {
  const { who } = useConsole();
  const { fail } = useAnnounce();
  const [busy, setBusy] = useState<ActName | "">("");
  return {
    busy,
    may: (name) => busy !== name && run.acts.includes(name),
    act: async (name, body = {}) => {
      setBusy(name);
      const since = mark(run.id);
      try {
        offer(await act<Run>("POST", `${pathOf(run.id)}/${name}`, { ...body, by: who.name }), since);
        return true;
      } catch (error) {
        fail(error);
        return false;
      } finally {
        setBusy("");
      }
    },
  };
}

/** The name of a device, or its id if it is not known. */
export function useDeviceName(device: string): string {
  return useShared(({ devices }) => devices.get(device)?.name ?? device);
}
