// A client for the HTTP API of a Remit hub. It needs nothing but `fetch`.

import type { components } from "./api.ts";
import { RemitError, isOutcome, refusal, unreachable } from "./errors.ts";
import { type RunEvent, events as read } from "./events.ts";

export { RemitError, type Fault } from "./errors.ts";
export { type RunEvent, outcomeOf } from "./events.ts";
export type { components } from "./api.ts";

type Schemas = components["schemas"];

/** The outcome of a delegation. One that failed has a `fault`. */
export type Outcome = Schemas["Response"];
/** A delegation that has not ended. */
export type Handle = Schemas["Handle"];
export type Agent = Schemas["PublicCard"];
export type Runs = Schemas["RunList"];
export type RunTree = Schemas["RunTree"];
export type RunAct = Schemas["RunAct"];
export type Approvals = Schemas["ApprovalList"];
export type WaitingApproval = Schemas["WaitingApproval"];
export type ApprovalDetail = Schemas["ApprovalDetail"];
export type RevealedQuestion = Schemas["RevealedQuestion"];
export type AnswerGiven = Schemas["AnswerGiven"];
export type Sessions = Schemas["SessionList"];
export type Session = Schemas["SessionView"];

/** What can be said of a request besides agent and text. Without an `id`, a new one is made. */
export type AskOptions = Partial<Omit<Schemas["Submission"], "target" | "objective">>;

export interface ClientOptions {
  token?: string;
  /** How long a call waits for its answer, with all repetitions; 60 s unless given. */
  timeoutMs?: number;
  /** Another `fetch`, for a proxy or a test. */
  fetch?: typeof fetch;
}

export type Query = Record<string, string | number | boolean | undefined>;

interface Call {
  method?: "GET" | "POST";
  body?: unknown;
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Whether sending it twice has the effect of sending it once; reads always have. */
  repeatable?: boolean;
}

const ATTEMPTS = 4;
const PAUSE_MS = 100;
// A server that is overloaded or restarting, or that its proxy cannot reach at the moment.
const BUSY = [429, 502, 503, 504];

/**
 * A client of one server. Every method throws a `RemitError` if it is refused.
 *
 * A delegation that fails is an outcome and no error: `ask` returns it, with its `fault`. A call is repeated after a lost
 * connection where that cannot do anything twice.
 */
export class RemitClient {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, options: ClientOptions = {}) {
    this.url = url.replace(/\/+$/, "");
    this.#headers = options.token ? { authorization: `Bearer ${options.token}` } : {};
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  // ── delegations ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** Ask an agent, and return the outcome, also if a person has to agree first. */
  async ask(agent: string, text: string, options: AskOptions = {}, signal?: AbortSignal): Promise<Outcome> {
    const until = this.#until(signal);
    const found = await this.#delegation(submission(agent, text, options), {}, until);
    return isOutcome(found) ? found : this.#outcome(found.run, until);
  }

  /** Ask an agent, and return a handle as soon as the request is stored. */
  async begin(agent: string, text: string, options: AskOptions = {}): Promise<Outcome | Handle> {
    return this.#delegation(submission(agent, text, options), { prefer: "respond-async" }, this.#until());
  }

  /** Ask an agent, and yield the events of the run; `outcomeOf` finds the outcome in the last one. */
  async *stream(
    agent: string,
    text: string,
    options: AskOptions = {},
    signal?: AbortSignal,
  ): AsyncGenerator<RunEvent, void> {
    const begun = await this.begin(agent, text, options);
    yield* this.events(begun.run ?? begun.id, { signal });
  }

  /** Return the outcome of a delegation, or a handle if it has not ended; `name` is its run or its id. */
  async look(name: string): Promise<Outcome | Handle> {
    return this.#result(`/v1/delegations/${encodeURIComponent(name)}`);
  }

  /** Wait for the outcome of a delegation. */
  async wait(name: string, signal?: AbortSignal): Promise<Outcome> {
    const until = this.#until(signal);
    const path = `/v1/delegations/${encodeURIComponent(name)}`;
    const found = await this.#result<Outcome | Handle>(path, { signal: until });
    return isOutcome(found) ? found : this.#outcome(found.run, until);
  }

  /** Cancel a delegation and everything below it. */
  async cancel(name: string, reason = ""): Promise<Outcome | Handle> {
    const path = `/v1/delegations/${encodeURIComponent(name)}/cancel`;
    return this.#result(path, { method: "POST", body: { reason }, repeatable: true });
  }

  /** Yield the events of a delegation, from its start or after a number, until it has ended. */
  async *events(
    name: string,
    { after, signal }: { after?: number | undefined; signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<RunEvent, void> {
    yield* read(this.#opened(`/v1/delegations/${encodeURIComponent(name)}/events`, signal), after, true);
  }

  // ── agents, runs ─────────────────────────────────────────────────────────────────────────────────────────────────

  async agents(): Promise<Agent[]> {
    return (await this.#result<Schemas["Agents"]>("/v1/agents")).agents;
  }

  async agent(name: string): Promise<Agent> {
    return this.#result(`/v1/agents/${encodeURIComponent(name)}`);
  }

  /** Return runs, newest first; `agent`, `user`, `state`, `q`, `limit` and others select. */
  async runs(query: Query = {}): Promise<Runs> {
    return this.#result("/v1/runs", { query });
  }

  async run(run: string): Promise<RunTree> {
    return this.#result(`/v1/runs/${encodeURIComponent(run)}`);
  }

  async cancelRun(run: string, body: { delegation?: string; reason?: string } = {}): Promise<RunAct> {
    return this.#result(`/v1/runs/${encodeURIComponent(run)}/cancel`, {
      method: "POST",
      body,
      repeatable: true,
    });
  }

  /** Repeat a run that did not succeed, as a new run; never sent twice by itself. */
  async retryRun(run: string, body: { max_tokens?: number; deadline_ms?: number } = {}): Promise<RunAct> {
    return this.#result(`/v1/runs/${encodeURIComponent(run)}/retry`, { method: "POST", body });
  }

  async resumeRun(run: string): Promise<RunAct> {
    return this.#result(`/v1/runs/${encodeURIComponent(run)}/resume`, { method: "POST", repeatable: true });
  }

  /** Yield the records of all runs that this client may see, without end: from now on, or after a number. */
  async *allEvents(
    query: { run?: string; kinds?: string } = {},
    { after, signal }: { after?: number | undefined; signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<RunEvent, void> {
    yield* read(this.#opened(withQuery("/v1/events", query), signal), after, false);
  }

  // ── approvals, conversations ─────────────────────────────────────────────────────────────────────────────────────

  async approvals(query: Query = {}): Promise<Approvals> {
    return this.#result("/v1/approvals", { query });
  }

  async approval(id: string): Promise<ApprovalDetail> {
    return this.#result(`/v1/approvals/${encodeURIComponent(id)}`);
  }

  /** Show a pending question with personal values in clear; the record says who read which. */
  async reveal(id: string, more: { by?: string } = {}): Promise<RevealedQuestion> {
    return this.#result(`/v1/approvals/${encodeURIComponent(id)}/reveal`, { method: "POST", body: more });
  }

  /** Answer a question as it was shown; one that changed since is refused. */
  async answer(
    question: WaitingApproval,
    agree: boolean,
    more: { reason?: string; edits?: Record<string, unknown>; by?: string } = {},
  ): Promise<AnswerGiven> {
    const body = { agree, digest: question.digest, ...more };
    return this.#result(`/v1/approvals/${encodeURIComponent(question.id)}`, { method: "POST", body });
  }

  async sessions(query: Query = {}): Promise<Sessions> {
    return this.#result("/v1/sessions", { query });
  }

  async session(name: string, query: Query = {}): Promise<Session> {
    return this.#result(`/v1/sessions/${encodeURIComponent(name)}`, { query });
  }

  // ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

  #until(signal?: AbortSignal): AbortSignal {
    const own = AbortSignal.timeout(this.#timeoutMs);
    return signal ? AbortSignal.any([own, signal]) : own;
  }

  async #delegation(
    body: Schemas["Submission"],
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Outcome | Handle> {
    // The id makes it repeatable: the same one is carried out once.
    return this.#result("/v1/delegations", { method: "POST", body, headers, signal, repeatable: true });
  }

  async #outcome(run: string, signal: AbortSignal): Promise<Outcome> {
    try {
      for await (const event of this.events(run, { signal })) void event;
    } catch (error) {
      throw signal.aborted ? timedOut(this.url) : error;
    }
    const found = await this.look(run); // worded for whoever asked, which a record is not
    if (isOutcome(found)) return found;
    throw new RemitError(0, {
      code: "OUTCOME_UNKNOWN",
      message: `the run ${run} has ended without an outcome`,
    });
  }

  async #result<T>(path: string, call: Call = {}): Promise<T> {
    const signal = call.signal ?? this.#until();
    const repeatable = call.repeatable ?? (call.method ?? "GET") === "GET";
    for (let attempt = 1, pause = PAUSE_MS; ; attempt += 1, pause *= 2) {
      let wait = pause;
      try {
        const reply = await this.#send(path, call, signal);
        const body = await bodyOf(reply);
        // A delegation that failed has an outcome, too.
        if (reply.ok || (path.startsWith("/v1/delegations") && isOutcome(body))) return body as T;
        const why = refusal(reply.status, body);
        if (!BUSY.includes(reply.status) || !repeatable || attempt >= ATTEMPTS) throw why;
        wait = Math.max(pause, why.fault.retry_after_ms ?? 0);
      } catch (error) {
        if (error instanceof RemitError) throw error;
        if (signal.aborted) throw timedOut(this.url);
        if (!repeatable || attempt >= ATTEMPTS) throw unreachable(this.url, error);
      }
      await paused(wait * (0.75 + Math.random() / 2), signal, this.url);
    }
  }

  async #send(path: string, call: Call, signal: AbortSignal | undefined): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...this.#headers, ...call.headers };
    if (call.body !== undefined) headers["content-type"] = "application/json";
    return this.#fetch(this.url + withQuery(path, call.query ?? {}), {
      method: call.method ?? "GET",
      headers,
      // The token is for this server alone.
      redirect: "error",
      ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
      ...(signal ? { signal } : {}),
    });
  }

  /** Return what opens a stream after an event. */
  #opened(
    path: string,
    signal: AbortSignal | undefined,
  ): (after: number | undefined) => Promise<Response | null> {
    return async (after) => {
      signal?.throwIfAborted();
      const headers = {
        accept: "text/event-stream",
        ...(after === undefined ? {} : { "last-event-id": `${after}` }),
      };
      let reply: Response;
      try {
        reply = await this.#send(path, { headers }, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        return null; // it, or another one, is back soon and has the rest
      }
      if (reply.ok) return reply;
      if (BUSY.includes(reply.status)) return null;
      throw refusal(reply.status, await bodyOf(reply));
    };
  }
}

function submission(agent: string, text: string, options: AskOptions): Schemas["Submission"] {
  return { id: crypto.randomUUID(), ...options, target: agent, objective: text } as Schemas["Submission"];
}

function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

async function bodyOf(reply: Response): Promise<unknown> {
  const text = await reply.text();
  try {
    return JSON.parse(text) as unknown;
  } catch {
    if (reply.ok)
      throw new RemitError(reply.status, { code: "DELEGATION_FAILED", message: "invalid answer: not JSON" });
    return undefined; // from a proxy, or from a server of another kind
  }
}

function timedOut(url: string): RemitError {
  return new RemitError(0, {
    code: "TIMEOUT",
    message: `no answer from ${url} in time, or the call was aborted`,
  });
}

async function paused(ms: number, signal: AbortSignal, url: string): Promise<void> {
  await new Promise<void>((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        done();
      },
      { once: true },
    );
  });
  if (signal.aborted) throw timedOut(url);
}
