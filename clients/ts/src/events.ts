// Streams of events, read to their end: a lost connection goes on after the last event that was received.

import type { components } from "./api.ts";

type Outcome = components["schemas"]["Response"];

/** One event of a run. */
export interface RunEvent {
  /** Its number in the record; a part of an answer (`delta`) has none, since it is not stored. */
  number: number | undefined;
  kind: string;
  run: string;
  at_ms: number;
  /** What happened, by its kind. */
  body: Record<string, unknown>;
}

/** Return the outcome of the run, if this is its last event. */
export function outcomeOf(event: RunEvent): Outcome | undefined {
  // The id of a nested delegation extends the id of its run.
  if (event.kind === "result" && !String(event.body["id"]).startsWith(`${event.run}.`))
    return event.body as Outcome;
  const asked = event.body["request"] as { parent?: string | null } | undefined;
  if (event.kind === "refused" && !asked?.parent) return event.body["response"] as Outcome;
  return undefined;
}

const LEAST_PAUSE_MS = 100;
const MOST_PAUSE_MS = 5_000;

type Open = (after: number | undefined) => Promise<Response | null>;

/** Yield the events of streams that `open` opens; `ends`: until one has an outcome. */
export async function* events(
  open: Open,
  after: number | undefined,
  ends: boolean,
): AsyncGenerator<RunEvent, void> {
  for (let pause = LEAST_PAUSE_MS; ; pause = Math.min(2 * pause, MOST_PAUSE_MS)) {
    const reply = await open(after);
    if (reply?.body) {
      for await (const event of parsed(reply.body)) {
        pause = LEAST_PAUSE_MS;
        after = event.number ?? after;
        yield event;
        if (ends && outcomeOf(event)) return;
      }
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function* parsed(body: ReadableStream<Uint8Array>): AsyncGenerator<RunEvent, void> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      let part: ReadableStreamReadResult<string>;
      try {
        part = await reader.read();
      } catch (error) {
        if (error instanceof DOMException && ["AbortError", "TimeoutError"].includes(error.name)) throw error;
        return; // the connection is lost
      }
      if (part.done) return;
      rest += part.value;
      const frames = rest.split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const event = eventOf(frame);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function eventOf(frame: string): RunEvent | undefined {
  const fields = new Map<string, string>();
  for (const line of frame.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields.set(line.slice(0, at), line.slice(at + 2));
  }
  const [kind, data, id] = [fields.get("event"), fields.get("data"), fields.get("id")];
  if (kind === undefined || data === undefined) return undefined;
  const record = JSON.parse(data) as { run?: string; at_ms?: number; body?: Record<string, unknown> };
  if (record.run === undefined || record.body === undefined) return undefined; // `ready`, which is no record
  return {
    number: id === undefined ? undefined : Number(id),
    kind,
    run: record.run,
    at_ms: record.at_ms ?? 0,
    body: record.body,
  };
}
