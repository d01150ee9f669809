// What was said, the newest below. It follows while it is at the bottom, and says how much is new if it is not.

import { ArrowDown } from "lucide-react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { act, get } from "@/api/client";
import type { components } from "@/api/shared";
import { useAnnounce } from "@/look/announce";
import { exactTime } from "@/look/format";
import { texts } from "@/texts";
import { pathOf } from "@/views/chat/acts";
import { EntryCard } from "@/views/chat/EntryCard";
import { newerThan, numberOf, type Stop, stopOf, timelineOf } from "@/views/chat/model";
import { Avatar, Said } from "@/views/chat/parts";
import { addPast, type KnownRun, type Run, useShared } from "@/views/chat/store";

// Less than a line: fingers and zoomed pages do not stop at the very end.
const NEAR_PX = 32;

export function Timeline({ known }: { known: KnownRun }) {
  const run = known.view;
  const items = useMemo(() => timelineOf(run, known.past), [run, known.past]);
  const writing = useShared((state) => state.writing.get(run.id));
  const last = items.at(-1);
  const newest = last ? numberOf(last.entry) : 0;
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [left, setLeft] = useState<number | null>(null);
  useRead(run, newest, left === null);

  const toBottom = () => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (follows.current) toBottom();
  }, [items, writing, run]);
  useEffect(() => {
    // The dock grows with a draft: what is at the bottom stays there.
    const watching = new ResizeObserver(() => (follows.current ? toBottom() : undefined));
    if (box.current) watching.observe(box.current);
    return () => watching.disconnect();
  }, []);
  const looked = useCallback(() => {
    if (!box.current) return;
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const bottom = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    if (bottom === follows.current) return;
    follows.current = bottom;
    setLeft(bottom ? null : newest);
  }, [newest]);
  useEffect(() => {
    // A text that somebody unfolds stays where it is, and what is below it is out of sight then.
    const watching = new ResizeObserver(looked);
    if (list.current) watching.observe(list.current);
    return () => watching.disconnect();
  }, [looked]);
  const fresh = left === null ? 0 : newerThan(items, left);
  return (
    <div className="chat-middle">
      <div
        className="chat-timeline"
        ref={box}
        onScroll={looked}

        role="region"
        tabIndex={0}
        aria-label={texts.chat.timeline}
      >
        <Earlier known={known} first={items[0]?.entry.id} />
        {items.length === 0 && !writing ? <p className="soft chat-none">{texts.chat.nothingSaid}</p> : null}
        <div ref={list} className="chat-log" role="log" aria-label={texts.chat.timeline}>
          {items.map(({ entry, kept, day }) => (
            <div key={entry.id}>
              {day ? <div className="chat-day">{exactTime(entry.at_ms).split(",")[0]}</div> : null}
              <EntryCard run={run} entry={entry} kept={kept} />
            </div>
          ))}
        </div>
        {writing ? <WritingCard run={run} text={writing.text} /> : null}
        {run.result ? (
          <div className="chat-entry result">
            <Avatar of="local_agent" />
            <div className="said">
              <div className="line">
                <strong>{texts.chat.result}</strong>
              </div>
              <Said text={run.result} />
            </div>
          </div>
        ) : null}
      </div>
      {left === null ? null : (
        <button
          type="button"
          className="button main chat-new-button"
          onClick={() => {
            follows.current = true;
            setLeft(null);
            toBottom();
          }}
        >
          <ArrowDown size={14} aria-hidden />
          {texts.chat.newer(fresh)}
        </button>
      )}
    </div>
  );
}

/** Tell the device that a person has read all, once it is on a screen that somebody looks at. */
function useRead(run: Run, newest: number, atBottom: boolean): void {
  const [visible, setVisible] = useState(() => document.visibilityState === "visible");
  useEffect(() => {
    const changed = () => setVisible(document.visibilityState === "visible");
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  const unread = run.unread > 0;
  useEffect(() => {
    if (!unread || !visible || !atBottom || newest === 0) return;
    // A mark that does not arrive is set with the next entry.
    act("POST", `${pathOf(run.id)}/read`, { entry: `${run.id}.e${newest}` }).catch(() => undefined);
  }, [run.id, unread, visible, atBottom, newest]);
}

function Earlier({ known, first }: { known: KnownRun; first: string | undefined }) {
  const { fail } = useAnnounce();
  const [busy, setBusy] = useState(false);
  const count = known.view.earlier - known.past.length;
  if (count <= 0 || first === undefined) return null;
  const load = async () => {
    setBusy(true);
    try {
      const path = `${pathOf(known.view.id)}/entries`;
      const page = await get<components["schemas"]["EntryList"]>(path, { before: first, limit: 200 });
      addPast(known.view.id, page.entries);
    } catch (error) {
      fail(error);
    }
    setBusy(false);
  };
  return (
    <button type="button" className="button plain chat-earlier" onClick={load} disabled={busy}>
      {texts.chat.earlier(count)}
    </button>
  );
}

/** What the local agent has written so far; or how far it came, and why it did not finish. */
function WritingCard({ run, text }: { run: Run; text: string }) {
  const stopped = stopOf(run);
  if (!text) return null;
  return (
    <div className="chat-entry local_agent writing">
      <Avatar of="local_agent" />
      <div className="said">
        <div className="line">
          <strong>{texts.chat.roles.local_agent}</strong>
          <span className="soft">{stopped ? reason(stopped) : texts.chat.isWriting}</span>
        </div>
        <Said text={text} />
      </div>
    </div>
  );
}

function reason(stopped: NonNullable<Stop>): string {
  const words = texts.chat.cutOff;
  return stopped.by === "failure" ? words.failure(stopped.why) : words[stopped.by];
}
