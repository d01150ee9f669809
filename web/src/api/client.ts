// How the page talks to its server: reads, acts with a CSRF proof, and streams that continue where they ended.

import { setCurrency } from "@/look/format";

export type Permission = "metrics" | "read" | "control" | "erase" | "priority";

export interface ConsoleState {
  version: string;
  /** Which parts this server has: the operator's, the chat's, or both. */
  views: ("operator" | "chat")[];
  who: { name: string; permissions: Permission[] };
  /** The proof that an act comes from this page; sent with every act. */
  csrf: string;
  team: string;
  /** The currency of all costs; only where there are some. */
  currency?: string;
}

export interface Fault {
  code: string;
  message: string;
  suggestion?: string;
}

/** A request that the server refused, or that did not reach it (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly fault: Fault;

  constructor(status: number, fault: Fault) {
    super(fault.message);
    this.status = status;
    this.fault = fault;
  }
}

export const UNREACHABLE = "UNREACHABLE";

/** The proof for acts of this page. */
let csrf = "";
const signedOut = new Set<() => void>();

/** Call *listener* whenever the server no longer knows this browser. */
export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** Return a path with its query; empty values are left out. */
export function withQuery(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** Send a request; raise an `ApiError` unless it succeeds. */
export async function send(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
  more: Record<string, string> = {},
): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json", ...more };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET") headers["x-remit-csrf"] = csrf;
  let reply: Response;
  try {
    reply = await fetch(path, {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, { code: UNREACHABLE, message: "" });
  }
  if (reply.ok) return reply;
  if (reply.status === 401) for (const listener of signedOut) listener();
  throw new ApiError(reply.status, await faultOf(reply));
}

async function faultOf(reply: Response): Promise<Fault> {
  try {
    const body = (await reply.json()) as { fault?: Fault };
    if (body.fault) return body.fault;
  } catch {
    // The body is not ours: a proxy's page, say.
  }
  return { code: `HTTP ${reply.status}`, message: reply.statusText };
}

async function valueOf<T>(reply: Response): Promise<T> {
  const text = await reply.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** Read something. */
export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return valueOf<T>(await send("GET", withQuery(path, query), undefined, signal));
}

/** Change something. */
export async function act<T>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
): Promise<T> {
  return valueOf<T>(await send(method, path, body ?? {}));
}

/** Send a file as it is. */
export async function upload<T>(path: string, file: Blob, type: string): Promise<T> {
  const headers = { accept: "application/json", "content-type": type, "x-remit-csrf": csrf };
  let reply: Response;
  try {
    reply = await fetch(path, { method: "POST", headers, credentials: "same-origin", body: file });
  } catch {
    throw new ApiError(0, { code: UNREACHABLE, message: "" });
  }
  if (!reply.ok) throw new ApiError(reply.status, await faultOf(reply));
  return valueOf<T>(reply);
}

/** Ask what this server has and who we are to it. Keeps the proof for acts. */
export async function enter(): Promise<ConsoleState> {
  const state = await get<ConsoleState>("/v1/console");
  csrf = state.csrf;
  if (state.currency) setCurrency(state.currency);
  return state;
}

/** Sign in with a token that a person typed; it is kept nowhere. */
export async function signIn(token: string): Promise<ConsoleState> {
  await act("POST", "/v1/console/session", { token });
  return enter();
}

export async function signOut(): Promise<void> {
  await act("DELETE", "/v1/console/session");
  csrf = "";
}
