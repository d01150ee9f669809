// What the pages about agents and spend have in common: queries of figures, and how figures are shown.

import { keepPreviousData, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { get, type Query } from "@/api/client";
import type { components } from "@/api/operator";
import type { Tone } from "@/look/format";

export type Schemas = components["schemas"];
export type AgentLoad = Schemas["AgentLoad"];
export type CallEdge = Schemas["CallEdge"];
export type SpendRow = Schemas["SpendRow"];
export type Phase = Schemas["Phase"];

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

// A server that has not read its whole record yet reads on with each request.
const READING_MS = 700;
const FRESH_MS = 10_000;

/** Ask for figures, and again every few seconds; at once while the server still reads the record. */
export function useFigures<T extends { complete: boolean }>(
  key: unknown[],
  path: string,
  query: Query = {},
): UseQueryResult<T> {
  return useQuery({
    queryKey: [...key, query],
    queryFn: ({ signal }) => get<T>(path, query, signal),
    refetchInterval: ({ state }) => (state.data?.complete === false ? READING_MS : FRESH_MS),
    placeholderData: keepPreviousData,
  });
}

const percents = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

/** A share, never rounded to 100 % while something failed. */
export function percent(share: number): string {
  if (share < 1 && share > 0.999) return "99.9%";
  return percents.format(share);
}

const BREAKERS: Record<Phase, Tone> = { closed: "good", open: "bad", probing: "warn" };

export const breakerTone = (phase: Phase): Tone => BREAKERS[phase];

/** How good a share of successes is. */
export const successTone = (share: number | null): Tone =>
  share === null ? "calm" : share >= 0.95 ? "good" : share >= 0.8 ? "warn" : "bad";

/** Return the agents with a text in their name or description. */
export function found(agents: AgentLoad[], text: string): AgentLoad[] {
  const wanted = text.trim().toLowerCase();
  return agents.filter((each) => `${each.name} ${each.description}`.toLowerCase().includes(wanted));
}
