// One conversation: what was said, newest at the end, and what was noted.

import { useInfiniteQuery } from "@tanstack/react-query";
import { ArrowUpRight, Bot, CircleUser } from "lucide-react";
import { Link, useParams } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { Badge, Command, CopyButton, Loading, State, Time, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { nameIn } from "./names";
import "./sessions.css";

type Session = components["schemas"]["SessionView"];
type Message = components["schemas"]["SessionMessage"];
type Note = components["schemas"]["Note"];

const said = texts.sessions;
// What is said meanwhile appears within this time.
const LOOK_AGAIN_MS = 3_000;

export default function SessionView() {
  const id = nameIn(useParams<{ id: string }>().id);
  const query = useInfiniteQuery({
    queryKey: ["session", id],
    queryFn: ({ pageParam, signal }) =>
      get<Session>(`/v1/sessions/${encodeURIComponent(id)}`, { before: pageParam }, signal),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: LOOK_AGAIN_MS,
  });
  const newest = query.data?.pages[0];
  if (query.isPending) {
    return (
      <>
        <ViewHead title={said.conversation} />
        <Loading />
      </>
    );
  }
  if (!newest) {
    return (
      <>
        <ViewHead title={said.conversation} />
        <Trouble error={query.error} again={() => void query.refetch()} />
      </>
    );
  }
  const messages = [...(query.data?.pages ?? [])].reverse().flatMap((page) => page.messages);
  return (
    <>
      <ViewHead title={said.title(newest.agent)}>
        <Link href="/sessions" className="button plain">
          {said.conversations}
        </Link>
      </ViewHead>
      <div className="session">
        <section className="stack" aria-label={said.messages}>
          {query.hasNextPage ? (
            <button
              type="button"
              className="button"
              disabled={query.isFetchingNextPage}
              onClick={() => void query.fetchNextPage()}
            >
              {said.earlier}
            </button>
          ) : (
            <p className="faint session-begin">{said.beginning}</p>
          )}
          <ol className="stack">
            {messages.map((message) => (
              <Said key={message.seq} message={message} user={newest.user} />
            ))}
          </ol>
        </section>
        <aside className="stack session-aside">
          <About session={newest} />
          <Notes notes={newest.notes} />
        </aside>
      </div>
    </>
  );
}

function Said({ message, user }: { message: Message; user: string }) {
  const isAnswer = message.role === "assistant";
  const Icon = isAnswer ? Bot : CircleUser;
  const path = `/runs/${encodeURIComponent(message.run)}/d/${encodeURIComponent(message.delegation)}`;
  return (
    <li className={isAnswer ? "session-said card answer" : "session-said card"}>
      <div className="head">
        <Icon size={16} aria-hidden />
        <strong className="one-line">{message.name === said.person ? user : message.name}</strong>
        {message.status && message.status !== "success" ? <State state={message.status} /> : null}
        {message.code ? <Badge tone="bad">{message.code}</Badge> : null}
        <span className="faint session-time">
          <Time at={message.at_ms} />
        </span>
        <Link href={path} className="button plain icon" aria-label={said.toDelegation}>
          <ArrowUpRight size={14} aria-hidden />
        </Link>
      </div>
      <div className="body">
        {message.text ? <p className="said">{message.text}</p> : <p className="faint">{said.noText}</p>}
        {message.is_cut ? <p className="faint">{said.cut}</p> : null}
      </div>
    </li>
  );
}

function About({ session }: { session: Session }) {
  return (
    <section className="card">
      <h2 className="head">{said.of(session.user, session.agent)}</h2>
      <div className="body stack">
        <dl className="facts">
          <dt>{said.id}</dt>
          <dd className="row">
            <code>{session.session}</code>
            <CopyButton text={session.session} />
          </dd>
          <dt>{said.user}</dt>
          <dd>
            <Link href={`/sessions?user=${encodeURIComponent(session.user)}`}>{session.user}</Link>
          </dd>
          <dt>{said.agent}</dt>
          <dd>
            <Link href={`/agents/${encodeURIComponent(session.agent)}`}>{session.agent}</Link>
          </dd>
        </dl>
        <div className="stack">
          <span className="label">{said.continueWith}</span>
          <Command text={`remit chat ${session.agent} --session ${session.session}`} />
        </div>
        <p className="faint">{said.redacted}</p>
      </div>
    </section>
  );
}

function Notes({ notes }: { notes: Note[] }) {
  const kinds: Record<string, string> = said.noteKinds;
  return (
    <section className="card">
      <h2 className="head">{said.notes}</h2>
      <div className="body">
        {notes.length === 0 ? <p className="faint">{said.noNotes}</p> : null}
        <ul className="stack">
          {notes.map((note) => (
            <li key={`${note.kind} ${note.text}`} className="session-note">
              <Badge>{kinds[note.kind] ?? note.kind}</Badge>
              <span className="said">{note.text}</span>
              <small>{said.noteBy(note.by)}</small>
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
