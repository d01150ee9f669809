// The conversations that users have with agents.

import { useInfiniteQuery } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { count } from "@/look/format";
import { Empty, Loading, Time, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { type Since, sinceMs } from "./since";
import "./sessions.css";

type SessionList = components["schemas"]["SessionList"];
type SessionLine = components["schemas"]["SessionLine"];

const said = texts.sessions;
const FILTERS = ["q", "user", "agent", "since"] as const;
// New conversations appear within this time.
const LOOK_AGAIN_MS = 10_000;

export default function SessionsView() {
  const [search, setSearch] = useSearchParams();
  const chosen = Object.fromEntries(FILTERS.map((name) => [name, search.get(name) ?? ""]));
  const filtered = FILTERS.some((name) => chosen[name]);
  const set = (name: string, value: string) =>
    setSearch(
      (all) => {
        const next = new URLSearchParams(all);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  const query = useInfiniteQuery({
    queryKey: ["sessions", chosen],
    queryFn: ({ pageParam, signal }) =>
      get<SessionList>(
        "/v1/sessions",
        { ...chosen, since: sinceMs(chosen.since ?? "", Date.now()), before: pageParam },
        signal,
      ),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: LOOK_AGAIN_MS,
  });
  const sessions = query.data?.pages.flatMap((page) => page.sessions) ?? [];
  return (
    <>
      <ViewHead title={texts.shell.views.sessions} />
      <Filters chosen={chosen} set={set} clear={filtered ? () => setSearch({}, { replace: true }) : null} />
      {query.isPending ? <Loading rows={8} /> : null}
      {query.isError && !query.data ? (
        <Trouble error={query.error} again={() => void query.refetch()} />
      ) : null}
      {query.isSuccess && sessions.length === 0 && !query.hasNextPage ? (
        filtered ? (
          <Empty title={said.noneFound} />
        ) : (
          <Empty title={said.none} command={said.noneCommand}>
            <p>{said.noneHint}</p>
          </Empty>
        )
      ) : null}
      {sessions.length ? <Sessions sessions={sessions} /> : null}
      {query.hasNextPage ? (
        <div className="row">
          <button
            type="button"
            className="button"
            disabled={query.isFetchingNextPage}
            onClick={() => void query.fetchNextPage()}
          >
            {query.isFetchingNextPage ? said.searching : texts.common.more}
          </button>
        </div>
      ) : null}
    </>
  );
}

function Filters({
  chosen,
  set,
  clear,
}: {
  chosen: Record<string, string>;
  set: (name: string, value: string) => void;
  clear: (() => void) | null;
}) {
  return (
    <search className="filters" aria-label={said.filters}>
      <TextFilter
        key={`q${chosen.q}`}
        label={said.text}
        hint={said.textHint}
        value={chosen.q ?? ""}
        set={(v) => set("q", v)}
        wide
      />
      <TextFilter
        key={`u${chosen.user}`}
        label={said.user}
        value={chosen.user ?? ""}
        set={(v) => set("user", v)}
      />
      <TextFilter
        key={`a${chosen.agent}`}
        label={said.agent}
        value={chosen.agent ?? ""}
        set={(v) => set("agent", v)}
      />
      <label className="filter">
        <span className="label">{said.since}</span>
        <select className="input" value={chosen.since} onChange={(event) => set("since", event.target.value)}>
          <option value="">{said.ever}</option>
          {(Object.keys(said.sinceChoices) as Since[]).map((word) => (
            <option key={word} value={word}>
              {said.sinceChoices[word]}
            </option>
          ))}
        </select>
      </label>
      {clear ? (
        <button type="button" className="button plain" onClick={clear}>
          {said.clear}
        </button>
      ) : null}
    </search>
  );
}

/** A field whose text is used once it is entered. */
export function TextFilter({
  label,
  hint,
  value,
  set,
  wide = false,
}: {
  label: string;
  hint?: string;
  value: string;
  set: (value: string) => void;
  wide?: boolean;
}) {
  const [text, setText] = useState(value);
  return (
    <form
      className={wide ? "filter wide" : "filter"}
      onSubmit={(event) => {
        event.preventDefault();
        set(text.trim());
      }}
    >
      <label>
        <span className="label">{label}</span>
        <span className="filter-field">
          {wide ? <Search size={14} aria-hidden /> : null}
          <input
            className="input"
            value={text}
            placeholder={hint}
            onChange={(event) => setText(event.target.value)}
            onBlur={() => text.trim() !== value && set(text.trim())}
          />
        </span>
      </label>
    </form>
  );
}

function Sessions({ sessions }: { sessions: SessionLine[] }) {
  return (
    <div className="card table-wrap">
      <table className="table sessions-table">
        <caption className="unseen">{said.conversations}</caption>
        <thead>
          <tr>
            <th scope="col">{said.objective}</th>
            <th scope="col">{said.user}</th>
            <th scope="col">{said.agent}</th>
            <th scope="col" className="number">
              {said.messages}
            </th>
            <th scope="col">{said.began}</th>
            <th scope="col">{said.changed}</th>
          </tr>
        </thead>
        <tbody>
          {sessions.map((each) => (
            <tr key={each.session}>
              <td className="what">
                <Link href={`/sessions/${encodeURIComponent(each.session)}`} className="one-line">
                  {each.objective || said.noText}
                </Link>
                <small className="one-line">{each.session}</small>
              </td>
              <td data-label={said.user}>{each.user}</td>
              <td data-label={said.agent}>
                <Link href={`/agents/${encodeURIComponent(each.agent)}`}>{each.agent}</Link>
              </td>
              <td className="number" data-label={said.messages}>
                {count(each.messages)}
              </td>
              <td className="time" data-label={said.began}>
                <Time at={each.first_ms} />
              </td>
              <td className="time" data-label={said.changed}>
                <Time at={each.last_ms} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
