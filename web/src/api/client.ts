// How the page talks to its server: reads, acts and files, each with the key of this page.

import { setCurrency } from "@/look/format";
import { save } from "@/look/save";

export type Permission = "metrics" | "read" | "control" | "reveal" | "erase" | "priority";

export interface ConsoleState {
  version: string;
  /** Which parts this server has: the operator's, the chat's, or both. */
  views: ("operator" | "chat")[];
  who: { name: string; permissions: Permission[] };
  /** The key that every request of this page needs; told at the sign-in alone. */
  page_key: string;
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

/** Where the browser keeps the key: unlike a cookie, for this port alone. */
const KEY = "remit.page-key";
const signedOut = new Set<() => void>();

/** Call *listener* whenever the server no longer knows this browser. */
export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

/** Take the key that a link brought behind the #, and remove it from the address. */
export function takeKey(): void {
  const brought = /^#key=([\w-]+)$/.exec(window.location.hash)?.[1];
  if (brought === undefined) return;
  localStorage.setItem(KEY, brought);
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
}

/** The headers of every request. */
export const keyed = (): Record<string, string> => ({ "x-remit-page-key": localStorage.getItem(KEY) ?? "" });

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
  const headers: Record<string, string> = { accept: "application/json", ...keyed(), ...more };
  if (body !== undefined) headers["content-type"] = "application/json";
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
  const headers = { accept: "application/json", "content-type": type, ...keyed() };
  let reply: Response;
  try {
    reply = await fetch(path, { method: "POST", headers, credentials: "same-origin", body: file });
  } catch {
    throw new ApiError(0, { code: UNREACHABLE, message: "" });
  }
  if (!reply.ok) throw new ApiError(reply.status, await faultOf(reply));
  return valueOf<T>(reply);
}

/** Have the browser save a file of the server; a plain link could not send the key. */
export async function download(path: string, name: string): Promise<void> {
  save(name, await (await send("GET", path, undefined, undefined, { accept: "*/*" })).blob());
}

/** Ask what this server has and who we are to it. */
export async function enter(): Promise<ConsoleState> {
  const state = await get<ConsoleState>("/v1/console");
  if (state.currency) setCurrency(state.currency);
  return state;
}

/** Sign in with a token that a person typed; it is kept nowhere. */
export async function signIn(token: string): Promise<ConsoleState> {
  const { page_key } = await act<ConsoleState>("POST", "/v1/console/session", { token });
  localStorage.setItem(KEY, page_key);
  return enter();
}

export async function signOut(): Promise<void> {
  await act("DELETE", "/v1/console/session");
  localStorage.removeItem(KEY);
}
