// Keys of a view. They do nothing while a person types, or while a window is open above the view.

import { useEffect, useRef } from "react";

/** The keys that send what was typed or give the answer that has the focus: no key alone decides. */
export const SEND_KEYS = /Mac|iPhone/.test(navigator.userAgent) ? "⌘ Enter" : "Ctrl Enter";

export const isSend = (event: { key: string; ctrlKey: boolean; metaKey: boolean }): boolean =>
  event.key === "Enter" && (event.ctrlKey || event.metaKey);

export type Keys = Partial<Record<string, (event: KeyboardEvent) => void>>;

const TYPING = "input, textarea, select, [contenteditable=true]";

export function useKeys(keys: Keys): void {
  const current = useRef(keys);
  useEffect(() => {
    current.current = keys;
  });
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest(TYPING) || document.querySelector("dialog[open]")) return;
      const run = current.current[event.key];
      if (run) {
        event.preventDefault();
        run(event);
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}
