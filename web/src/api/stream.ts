// A stream of server-sent events that continues after the last event it got, however often it breaks.

import { ApiError, type Query, send, withQuery } from "@/api/client";

export interface StreamEvent {
  type: string;
  data: unknown;
  id: string;
}

export interface Following {
  onEvent: (event: StreamEvent) => void;
  /** Whether the stream is connected now. */
  onState?: (connected: boolean) => void;
  /** Where to begin: the id of the last event that is known already. */
  after?: string;
}

// A server that restarts is back within seconds; one that is gone is not asked more often than this.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
// A browser has six connections to a server, for all its tabs: a tab that nobody sees holds none of them. It looks in
// now and then, so that its title and its notifications are right.
const HIDDEN_MS = 5_000;
const LOOK_EVERY_MS = 20_000;
const QUIET_MS = 1_500;

/** Follow a stream until the returned function is called. */
export function follow(path: string, query: Query, following: Following): () => void {
  const ending = new AbortController();
  void keep(withQuery(path, query), following, ending.signal);
  return () => ending.abort();
}

async function keep(address: string, following: Following, signal: AbortSignal): Promise<void> {
  let last = following.after ?? "";
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    const attention = new Attention(signal);
    try {
      const more = { accept: "text/event-stream", ...(last ? { "last-event-id": last } : {}) };
      const reply = await send("GET", address, undefined, attention.signal, more);
      following.onState?.(true);
      for await (const event of eventsOf(reply, (id) => (last = id))) {
        wait = FIRST_WAIT_MS;
        attention.event();
        following.onEvent(event);
      }
    } catch (error) {
      // Signed out: the page shows how to sign in, and starts anew then.
      if (error instanceof ApiError && error.status === 401) return;
    } finally {
      attention.end();
    }
    if (attention.isResting) {
      await untilSeen(LOOK_EVERY_MS, signal);
      continue;
    }
    following.onState?.(false);
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** Ends a connection once nobody sees the page: after a moment, or, if it was hidden from the start, after a look. */
class Attention {
  readonly #leaving = new AbortController();
  readonly signal: AbortSignal;
  isResting = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(ending: AbortSignal) {
    this.signal = AbortSignal.any([ending, this.#leaving.signal]);
    document.addEventListener("visibilitychange", this.#changed);
    if (document.hidden) this.#restIn(QUIET_MS);
  }

  /** Something came: a look lasts until it is quiet. */
  event(): void {
    if (this.#timer !== undefined && document.hidden) this.#restIn(QUIET_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#changed);
  }

  #changed = () => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (document.hidden) this.#restIn(HIDDEN_MS);
  };

  #restIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.isResting = true;
      this.#leaving.abort();
    }, ms);
  }
}

/** Wait until the page is seen again, at most for a time. */
async function untilSeen(ms: number, signal: AbortSignal): Promise<void> {
  if (!document.hidden) return;
  const seen = new AbortController();
  const changed = () => (document.hidden ? undefined : seen.abort());
  document.addEventListener("visibilitychange", changed);
  await pause(ms, AbortSignal.any([signal, seen.signal]));
  document.removeEventListener("visibilitychange", changed);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}

async function* eventsOf(reply: Response, passed: (id: string) => void): AsyncGenerator<StreamEvent> {
  if (!reply.body) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(passed);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.take(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Turns pieces of a stream into events, wherever the pieces are cut. */
export class EventParser {
  #rest = "";
  #type = "";
  #id = "";
  #data: string[] = [];
  readonly #passed: (id: string) => void;

  /** *passed* is called with the number of each event, also of one without data, which says how far a stream is. */
  constructor(passed: (id: string) => void = () => undefined) {
    this.#passed = passed;
  }

  *take(piece: string): Generator<StreamEvent> {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      const event = this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (event) yield event;
    }
  }

  #line(line: string): StreamEvent | null {
    if (line === "") {
      const event = this.#data.length
        ? { type: this.#type || "message", data: JSON.parse(this.#data.join("\n")) as unknown, id: this.#id }
        : null;
      if (this.#id) this.#passed(this.#id);
      this.#type = "";
      this.#id = "";
      this.#data = [];
      return event;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.#type = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
    return null;
  }
}
