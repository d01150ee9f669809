// Notifications of the browser when a conversation begins to wait for the user. Asked for by a click, never by itself.

import { useState } from "react";
import { texts } from "@/texts";
import { waitingFor } from "@/views/chat/model";
import { observe, type Shared } from "@/views/chat/store";

const KEY = "remit.notices";
type Wish = "none" | "on" | "off" | "blocked";

function wish(): Wish {
  if (!("Notification" in window)) return "none";
  if (Notification.permission === "denied") return "blocked";
  return Notification.permission === "granted" && localStorage.getItem(KEY) === "on" ? "on" : "off";
}

let known = new Set<string>();

/** The device of a conversation that begins to wait; null if there is none. Each occasion is told once. */
export function newlyWaiting({ runs, ready }: Shared): string | null {
  const waiting = [...runs.values()].filter(({ view, stale }) => !stale && waitingFor(view) > 0);
  const now = new Map(
    waiting.flatMap(({ view }) =>
      [view.draft?.id ?? "", ...view.questions.map(({ id }) => id)].map((id) => [
        `${view.id} ${id}`,
        view.device,
      ]),
    ),
  );
  const begun = [...now].find(([key]) => !known.has(key));
  known = new Set(now.keys());
  return ready && begun ? begun[1] : null;
}

/** Tell the user from now on, if they asked for it and look elsewhere. */
export function watchForNotices(): void {
  observe((state) => {
    const device = newlyWaiting(state);
    if (device === null || !document.hidden || wish() !== "on") return;
    // No word of the agents: other people may see the screen.
    const body = texts.chat.notice(state.devices.get(device)?.name ?? device);
    const notice = new Notification(texts.chat.noticeTitle, { body, tag: "remit" });
    notice.onclick = () => window.focus();
  });
}

export function useNotices(): { state: Wish; ask: () => void } {
  const [state, setState] = useState(wish);
  const ask = async () => {
    if (state === "on") localStorage.removeItem(KEY);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
    setState(wish());
  };
  return { state, ask: () => void ask() };
}
