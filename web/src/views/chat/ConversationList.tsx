// All conversations: searched by the device, kept up to date by the stream.

import { useInfiniteQuery } from "@tanstack/react-query";
import { Bell, BellOff, Plus } from "lucide-react";
import { useDeferredValue, useState } from "react";
import { Link } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/shared";
import { State, Time, Tip, Trouble, Loading } from "@/look/parts";
import { texts } from "@/texts";
import { useDeviceName } from "@/views/chat/acts";
import { doing, hasEnded, lineOf, TONES, waitingFor } from "@/views/chat/model";
import { useNotices } from "@/views/chat/notices";
import { type Line, useShared } from "@/views/chat/store";

type Filter = keyof typeof texts.chat.filters;
const OPEN = "idle,planning,waiting_local,ready_to_send,waiting_remote,processing_remote,paused,error";
const ENDED = "completed,stopped";

export function ConversationList({ chosen }: { chosen: string | undefined }) {
  const [search, setSearch] = useState("");
  const [filter, setFilter] = useState<Filter>("all");
  const q = useDeferredValue(search.trim());
  const epoch = useShared((state) => state.epoch);
  const runs = useShared((state) => state.runs);
  const query = useInfiniteQuery({
    queryKey: ["shared", "runs", q, filter, epoch],
    queryFn: ({ pageParam, signal }) => {
      const state = filter === "ended" ? ENDED : filter === "all" ? "" : OPEN;
      const asked = { q, state, before: pageParam, limit: 50 };
      return get<components["schemas"]["SharedRunList"]>("/v1/shared/runs", asked, signal);
    },
    initialPageParam: "",
    getNextPageParam: (page) => page.next,
    placeholderData: (before) => before,
  });
  const lines = (query.data?.pages ?? [])
    .flatMap((page) => page.runs)
    .map((line) => {
      const known = runs.get(line.id);
      return known && !known.stale ? lineOf(known.view) : line;
    })
    .filter((line) => isShown(line, filter));
  return (
    <aside className="chat-list" aria-label={texts.chat.conversations}>
      <div className="chat-list-head">
        <h2>{texts.chat.conversations}</h2>
        <NoticeButton />
        <Link href="/chat/new" className="button main">
          <Plus size={14} aria-hidden />
          {texts.chat.newShort}
          <span className="unseen"> {texts.chat.newRest}</span>
        </Link>
      </div>
      <div className="chat-list-find">
        <input
          id="chat-search"
          type="search"
          className="input"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
          placeholder={texts.chat.search}
          aria-label={texts.chat.search}
        />
        <select
          className="input"
          value={filter}
          onChange={(event) => setFilter(event.target.value as Filter)}
          aria-label={texts.chat.show}
        >
          {(Object.keys(texts.chat.filters) as Filter[]).map((name) => (
            <option key={name} value={name}>
              {texts.chat.filters[name]}
            </option>
          ))}
        </select>
      </div>
      {query.isPending ? <Loading rows={5} /> : null}
      {query.error ? <Trouble error={query.error} again={() => void query.refetch()} /> : null}
      <ul className="chat-lines">
        {lines.map((line) => (
          <ListLine key={line.id} line={line} chosen={line.id === chosen} />
        ))}
      </ul>
      {query.data && lines.length === 0 ? (
        <p className="soft chat-none">{q || filter !== "all" ? texts.chat.noneFound : texts.chat.none}</p>
      ) : null}
      {query.hasNextPage ? (
        <button type="button" className="button plain" onClick={() => void query.fetchNextPage()}>
          {texts.common.more}
        </button>
      ) : null}
    </aside>
  );
}

function isShown(line: Line, filter: Filter): boolean {
  if (filter === "waiting") return line.waits || line.questions > 0;
  if (filter === "open") return !hasEnded(line);
  return filter === "all" || hasEnded(line);
}

function ListLine({ line, chosen }: { line: Line; chosen: boolean }) {
  const device = useDeviceName(line.device);
  const known = useShared(({ runs }) => runs.get(line.id));
  const now = doing(line, known?.view.decides);
  const waiting = known ? waitingFor(known.view) > 0 : line.waits;
  return (
    <li>
      <Link
        href={`/chat/${line.id}`}
        className={`chat-line ${waiting ? "waits" : ""}`}
        aria-current={chosen ? "page" : undefined}
      >
        <span className="top">
          <span className="what">{line.objective || texts.chat.plain}</span>
          {line.unread > 0 ? (
            <span className="count">
              <span aria-hidden>{line.unread}</span>
              <span className="unseen">{texts.chat.unread(line.unread)}</span>
            </span>
          ) : null}
        </span>
        <span className="under">
          <span className="one-line">{line.agent ? `${device} · ${line.agent}` : device}</span>
          {line.at_ms === null ? null : <Time at={line.at_ms} past />}
        </span>
        <State state={now} word={texts.chat.doing[now]} tone={TONES[now]} />
      </Link>
    </li>
  );
}

function NoticeButton() {
  const { state, ask } = useNotices();
  if (state === "none") return null;
  const Icon = state === "on" ? Bell : BellOff;
  const text = { on: texts.chat.notifying, off: texts.chat.notify, blocked: texts.chat.notifyBlocked }[state];
  return (
    <Tip text={text}>
      <button
        type="button"
        className="button plain icon"
        aria-label={text}
        aria-pressed={state === "on"}
        onClick={ask}
      >
        <Icon size={16} aria-hidden />
      </button>
    </Tip>
  );
}
