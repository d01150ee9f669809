// What a person has typed and not sent: kept in memory while the page is open, never in the browser's storage.

import { useSyncExternalStore } from "react";

const values = new Map<string, string>();
const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

const warn = (event: BeforeUnloadEvent) => event.preventDefault();

/** Keep a text under a key; null forgets it. The browser warns before the page goes while there is any. */
export function keepTyped(key: string, value: string | null): void {
  if (value === null) values.delete(key);
  else values.set(key, value);
  if ([...values.values()].some((text) => text.trim())) window.addEventListener("beforeunload", warn);
  else window.removeEventListener("beforeunload", warn);
  changed();
}

export const typedFor = (key: string): string | null => values.get(key) ?? null;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The text under a key, null if there is none, and how to change it. */
export function useTyped(key: string): [string | null, (value: string | null) => void] {
  const value = useSyncExternalStore(subscribe, () => typedFor(key));
  return [value, (now) => keepTyped(key, now)];
}

/** The keys that begin with one of *prefixes* and hold a text. */
export function useTypedKeys(...prefixes: string[]): string[] {
  const joined = useSyncExternalStore(subscribe, () =>
    [...values]
      .filter(([key, text]) => text.trim() && prefixes.some((prefix) => key.startsWith(prefix)))
      .map(([key]) => key)
      .join("\n"),
  );
  return joined ? joined.split("\n") : [];
}
