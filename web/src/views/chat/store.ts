// What the stream of the device told last: whole views, of which the newest replaces the one before.

import { useSyncExternalStore } from "react";
import { follow, type StreamEvent } from "@/api/stream";
import type { components } from "@/api/shared";
import { stopOf } from "@/views/chat/model";

type Schemas = components["schemas"];
export type Run = Schemas["SharedRunView"];
export type Line = Schemas["SharedRunLine"];
export type Entry = Schemas["EntryView"];
export type Device = Schemas["DeviceView"];
export type Profile = Schemas["ProfileView"];
export type Connection = Schemas["ConnectionView"];
export type Unread = Schemas["UnreadView"];
export type Question = Schemas["QuestionView"];
export type FileView = Schemas["FileView"];
export type ActName = Run["acts"][number];
export type Mode = Run["mode"];

export interface KnownRun {
  view: Run;
  /** Entries before those of the view, as far as this page has seen them; nothing is missing between. */
  past: readonly Entry[];
  /** When it arrived in this page, by the page's clock. */
  atMs: number;
  /** Whether it may have changed while the stream was away: it is read anew then. */
  stale: boolean;
}

/** What an agent has written of a draft so far. */
export interface Writing {
  draft: string;
  text: string;
}

export interface Shared {
  connected: boolean;
  /** Whether the current state of everything is here. */
  ready: boolean;
  /** Grows whenever lists must be read anew. */
  epoch: number;
  runs: ReadonlyMap<string, KnownRun>;
  devices: ReadonlyMap<string, Device>;
  profiles: ReadonlyMap<string, Profile>;
  connection: Connection | null;
  unread: Unread | null;
  writing: ReadonlyMap<string, Writing>;
}

export const NOTHING: Shared = {
  connected: false,
  ready: false,
  epoch: 0,
  runs: new Map(),
  devices: new Map(),
  profiles: new Map(),
  connection: null,
  unread: null,
  writing: new Map(),
};

const withValue = <T>(map: ReadonlyMap<string, T>, key: string, value: T): ReadonlyMap<string, T> =>
  new Map(map).set(key, value);

/** Return the state after an event. *told* has the runs that this connection has told of, and gets the new one. */
export function after(state: Shared, event: StreamEvent, told: Set<string>, nowMs: number): Shared {
  switch (event.type) {
    case "run": {
      const view = event.data as Run;
      told.add(view.id);
      const isNew = !state.runs.has(view.id);
      return {
        ...state,
        runs: withValue(state.runs, view.id, known(state.runs.get(view.id), view, nowMs)),
        writing: stillWriting(state, view),
        epoch: state.ready && isNew ? state.epoch + 1 : state.epoch,
      };
    }
    case "device": {
      const device = event.data as Device;
      return { ...state, devices: withValue(state.devices, device.id, device) };
    }
    case "profile": {
      const profile = event.data as Profile;
      return { ...state, profiles: withValue(state.profiles, profile.id, profile) };
    }
    case "connection":
      return { ...state, connection: event.data as Connection };
    case "unread":
      return { ...state, unread: event.data as Unread };
    case "draft": {
      const { run, draft, text } = event.data as Schemas["DraftPart"];
      return { ...state, writing: withValue(state.writing, run, { draft, text }) };
    }
    case "ready":
      return (event.data as Schemas["StreamReady"]).resumed
        ? { ...state, ready: true }
        : { ...state, ready: true, epoch: state.epoch + 1, runs: aged(state.runs, told) };
    default:
      return state;
  }
}

/** Forget what was written of a draft once it is whole, was sent, or was rejected. */
function stillWriting(state: Shared, view: Run): ReadonlyMap<string, Writing> {
  const before = state.runs.get(view.id)?.view;
  const written = state.writing.get(view.id);
  if (!written) return state.writing;
  const goesOn = view.state === "waiting_local" || view.state === "paused";
  const isWhole = view.draft?.id === written.draft || (!goesOn && stopOf(view) === null);
  const isOver = before && (before.turn !== view.turn || before.rejected.length !== view.rejected.length);
  if (!isWhole && !isOver) return state.writing;
  const rest = new Map(state.writing);
  rest.delete(view.id);
  return rest;
}

/** Return a run with its new view; entries that the view no longer shows are kept. */
function known(before: KnownRun | undefined, view: Run, nowMs: number): KnownRun {
  let past = before?.past ?? [];
  if (before && view.earlier > before.view.earlier) {
    const shown = new Set([...view.timeline, ...view.rejected].map(({ id }) => id));
    const gone = [...before.view.timeline, ...before.view.rejected].filter(({ id }) => !shown.has(id));
    past = [...past, ...gone];
  }
  return { view, past, atMs: nowMs, stale: false };
}

/** Runs that a new process did not tell of have ended, or are gone. */
function aged(runs: ReadonlyMap<string, KnownRun>, told: Set<string>): ReadonlyMap<string, KnownRun> {
  return new Map([...runs].map(([id, known]) => [id, told.has(id) ? known : { ...known, stale: true }]));
}

let state = NOTHING;
let told = new Set<string>();
const listeners = new Set<() => void>();
const observers = new Set<(state: Shared) => void>();
/** How often the stream has told of each run. */
const times = new Map<string, number>();
let end: (() => void) | null = null;

function set(next: Shared): void {
  if (next === state) return;
  state = next;
  for (const listener of listeners) listener();
  for (const observer of observers) observer(state);
}

function start(): void {
  end = follow(
    "/v1/shared/events",
    {},
    {
      onEvent: (event) => {
        if (event.type === "run") {
          const { id } = event.data as Run;
          times.set(id, (times.get(id) ?? 0) + 1);
        }
        set(after(state, event, told, Date.now()));
      },
      onState: (connected) => {
        if (connected) told = new Set();
        if (connected !== state.connected) set({ ...state, connected });
      },
    },
  );
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (end === null) start();
  return () => {
    listeners.delete(listener);
    // A view that replaces another subscribes before this runs.
    setTimeout(() => {
      if (listeners.size > 0 || end === null) return;
      end();
      end = null;
      state = { ...NOTHING, epoch: state.epoch };
    }, 0);
  };
}

const unsubscribed = () => () => undefined;

/** Use a part of what is known; the part must be the same object as long as nothing of it changed. */
export function useShared<T>(part: (state: Shared) => T, enabled = true): T {
  return useSyncExternalStore(enabled ? subscribe : unsubscribed, () => part(state));
}

/** Call *observer* with each new state; that alone does not start the stream. */
export function observe(observer: (state: Shared) => void): void {
  observers.add(observer);
}

/** A mark for `offer`: how often the stream had told of a run when it was asked for. */
export const mark = (run: string): number => times.get(run) ?? 0;

/** Take the view in a response, unless the stream has told something newer meanwhile. */
export function offer(view: Run, since: number): void {
  if (mark(view.id) !== since) return;
  set({ ...state, runs: withValue(state.runs, view.id, known(state.runs.get(view.id), view, Date.now())) });
}

/** Keep a page of entries before those that are known. */
export function addPast(run: string, entries: readonly Entry[]): void {
  const before = state.runs.get(run);
  if (!before) return;
  const ids = new Set(before.past.map(({ id }) => id));
  const past = [...entries.filter(({ id }) => !ids.has(id)), ...before.past];
  set({ ...state, runs: withValue(state.runs, run, { ...before, past }) });
}
