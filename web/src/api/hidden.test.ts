import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { follow } from "./stream";

class Page extends EventTarget {
  hidden = false;
  show(seen: boolean): void {
    this.hidden = !seen;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

const page = new Page();
let open: { last: string; signal: AbortSignal }[] = [];

beforeEach(() => {
  open = [];
  page.hidden = false;
  vi.useFakeTimers();
  vi.stubGlobal("document", page);
  vi.stubGlobal("localStorage", { getItem: () => "key" });
  vi.stubGlobal("fetch", (_: string, init: { headers: Record<string, string>; signal: AbortSignal }) => {
    open.push({ last: init.headers["last-event-id"] ?? "", signal: init.signal });
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(`id: ${open.length}\ndata: {}\n\n`));
        init.signal.addEventListener("abort", () => controller.error(init.signal.reason));
      },
    });
    return Promise.resolve(new Response(body));
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const connections = () => open.filter(({ signal }) => !signal.aborted).length;

test("a tab that nobody sees holds no connection, looks in now and then, and misses nothing", async () => {
  const events: string[] = [];
  const states: boolean[] = [];
  const leave = follow(
    "/v1/events",
    {},
    { onEvent: ({ id }) => events.push(id), onState: (on) => states.push(on) },
  );
  await vi.advanceTimersByTimeAsync(60_000);
  expect(connections()).toBe(1);

  page.show(false);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(connections()).toBe(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(connections()).toBe(0);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(open.map(({ last }) => last)).toEqual(["", "1"]);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(connections()).toBe(0);

  page.show(true);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(open.map(({ last }) => last)).toEqual(["", "1", "2"]);
  expect(connections()).toBe(1);
  expect(events).toEqual(["1", "2", "3"]);
  expect(states).not.toContain(false);
  leave();
  expect(connections()).toBe(0);
});
