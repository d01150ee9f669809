// What goes wrong: a code for programs, a sentence for people, a suggestion for the caller.

import type { components } from "./api.ts";

type Schemas = components["schemas"];

export interface Fault {
  /** A code of the hub, such as `UNAUTHENTICATED`; the server's pages explain each. */
  code: string;
  message: string;
  suggestion?: string | null;
  retry_after_ms?: number | null;
}

/** A call that was refused, or that did not reach the server (status 0). */
export class RemitError extends Error {
  readonly status: number;
  readonly fault: Fault;

  constructor(status: number, fault: Fault, cause?: unknown) {
    super(`${fault.code}: ${fault.message}`, cause === undefined ? undefined : { cause });
    this.name = "RemitError";
    this.status = status;
    this.fault = fault;
  }

  get code(): string {
    return this.fault.code;
  }
}

/** Return whether a body is the outcome of a delegation: a handle has a state, and a failure has neither. */
export function isOutcome(body: unknown): body is Schemas["Response"] {
  return typeof body === "object" && body !== null && "id" in body && "status" in body;
}

export function refusal(status: number, body: unknown): RemitError {
  const fault =
    typeof body === "object" && body !== null && "fault" in body ? (body.fault as Fault) : undefined;
  const foreign = { code: "DELEGATION_UNAVAILABLE", message: `status ${status}, not as a hub answers` };
  return new RemitError(status, fault ?? foreign);
}

export function unreachable(url: string, cause: unknown): RemitError {
  return new RemitError(0, { code: "DELEGATION_UNAVAILABLE", message: `${url} cannot be reached` }, cause);
}
