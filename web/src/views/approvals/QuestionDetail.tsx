// One question: what is asked, for whom, by which rule, the whole request, and the answer.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ArrowLeft } from "lucide-react";
import { type KeyboardEvent, type Ref, useImperativeHandle, useRef, useState } from "react";
import { Link } from "wouter";
import { act, get } from "@/api/client";
import { useMay } from "@/api/console";
import { useAnnounce } from "@/look/announce";
import { bytes, count, counted, duration } from "@/look/format";
import { isSend } from "@/look/keys";
import { Loading, SendKeys, Time, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { EditFields } from "@/views/approvals/EditFields";
import {
  type Answered,
  type ApprovalDetail,
  type ApprovalList,
  type Drafts,
  type EditableField,
  editsOf,
  fieldsOf,
  type RevealedQuestion,
  type ShownQuestion,
  type Waiting,
} from "@/views/approvals/model";
import { readable, splitTokens } from "@/views/delegation/model";
import { Marked, Part, Value } from "@/views/delegation/Value";

const words = texts.approvals;
const ALSO_SENT = "also sent";

export interface QuestionHandle {
  /** Choose an answer: the reason is typed next. */
  choose: (agree: boolean) => void;
  edit: () => void;
}

export function QuestionDetail({
  id,
  onBack,
  onAnswered,
  ref,
}: {
  id: string;
  onBack: () => void;
  onAnswered: () => void;
  ref?: Ref<QuestionHandle>;
}) {
  const { data, error, refetch } = useQuery({
    queryKey: ["approvals", id],
    queryFn: ({ signal }) =>
      get<ApprovalDetail>(`/v1/approvals/${encodeURIComponent(id)}`, undefined, signal),
  });
  return (
    <article className="card question">
      <button type="button" className="button plain back" onClick={onBack}>
        <ArrowLeft size={14} aria-hidden />
        {words.back}
      </button>
      {error && !data ? <Trouble error={error} again={() => void refetch()} /> : null}
      {!data && !error ? <Loading /> : null}
      {data?.waiting ? (
        <Open ref={ref} item={data.waiting} request={data.request} view={data.view} onAnswered={onAnswered} />
      ) : null}
      {data && !data.waiting ? <Over detail={data} /> : null}
    </article>
  );
}

function Over({ detail }: { detail: ApprovalDetail }) {
  const { answered, request } = detail;
  return (
    <>
      {answered ? (
        <div className={`banner ${answered.agreed ? "good" : "bad"}`} role="status">
          <strong>{verdictOf(answered)}</strong>
          {answered.reason ? <span>{words.answered.reason(answered.reason)}</span> : null}
          {answered.edited.length ? <span>{words.answered.edited(answered.edited.join(", "))}</span> : null}
          {answered.at_ms ? <Time at={answered.at_ms} /> : null}
        </div>
      ) : (
        <div className="banner" role="status">
          {words.answered.over}
        </div>
      )}
      {answered ? (
        <h2>
          <Marked text={answered.question} />
        </h2>
      ) : null}
      {answered ? (
        <Link href={`/runs/${answered.run}/d/${answered.delegation}`}>{words.openCall}</Link>
      ) : null}
      {request ? <Content request={request} /> : null}
    </>
  );
}

function verdictOf({ agreed, by }: Answered): string {
  const who = by || words.answered.nobody;
  return agreed ? words.answered.yes(who) : words.answered.no(who);
}

type RequestView = NonNullable<ApprovalDetail["request"]>;

function Open({
  item,
  request,
  view: redacted,
  onAnswered,
  ref,
}: {
  item: Waiting;
  request: RequestView | null;
  view: ShownQuestion | null;
  onAnswered: () => void;
  ref: Ref<QuestionHandle> | undefined;
}) {
  // The answer that was chosen, or whose button last had the focus; it is given by a click, or by the keys that send.
  const [chosen, setChosen] = useState<boolean | null>(null);
  const [reason, setReason] = useState("");
  const [drafts, setDrafts] = useState<Drafts | null>(null);
  const reasonField = useRef<HTMLInputElement>(null);
  const answer = useAnswer(item, onAnswered);
  const mayReveal = useMay("reveal");
  const reveal = useReveal(item);
  const view = reveal.data?.view ?? redacted;
  const mayEdit = item.editable.length > 0 && item.may_answer;
  const { edits, wrong } = editsOf(drafts ?? {}, request ?? {});
  const edited = Object.keys(edits).length > 0;
  const edit = () => (mayEdit ? setDrafts((now) => now ?? {}) : undefined);
  useImperativeHandle(ref, () => ({
    choose: (yes) => {
      if (!item.may_answer) return;
      setChosen(yes);
      reasonField.current?.focus();
    },
    edit,
  }));
  const send = (yes: boolean) => {
    if (answer.isPending || (yes && wrong.length)) return;
    answer.mutate({ agree: yes, reason, edits: yes ? edits : {} });
  };
  const approve = edited ? words.approveEdited : words.approve;
  const pressed = (event: KeyboardEvent) => {
    if (!isSend(event)) return;
    event.preventDefault();
    if (chosen !== null) send(chosen);
  };
  return (
    <>
      <h2>
        <Marked text={item.question} />
      </h2>
      <About item={item} sentence={view?.sentence ?? item.sentence} request={request} />
      {mayReveal && redacted && hasTokens(redacted) ? (
        <p className="reveal">
          <button
            type="button"
            className="button"
            disabled={reveal.isPending || reveal.isSuccess}
            onClick={() => reveal.mutate()}
          >
            {words.reveal}
          </button>{" "}
          <span className="soft">
            {reveal.data ? words.revealed(hasTokens(reveal.data.view)) : words.revealHint}
          </span>
        </p>
      ) : null}
      {drafts && request ? (
        <EditFields
          fields={item.editable as EditableField[]}
          request={request}
          drafts={drafts}
          wrong={wrong}
          onChange={setDrafts}
          onDiscard={() => setDrafts(null)}
        />
      ) : null}
      {view ? <Shown view={view} /> : null}
      {item.may_answer ? (
        <div className="answer">
          <div className="field">
            <div className="reason-head">
              <label htmlFor="approval-reason">{words.reason}</label>
              <SendKeys
                id="approval-keys"
                act={chosen === null ? words.unchosen : chosen ? approve : words.reject}
              />
            </div>
            <input
              id="approval-reason"
              ref={reasonField}
              className="input"
              value={reason}
              maxLength={2_000}
              aria-describedby="approval-hint approval-keys"
              onChange={(event) => setReason(event.target.value)}
              onKeyDown={(event) => (event.key === "Escape" ? event.currentTarget.blur() : pressed(event))}
            />
            <span className="hint" id="approval-hint">
              {words.reasonHint}
            </span>
          </div>
          <div className="acts">
            {mayEdit && !drafts ? (
              <button type="button" className="button" onClick={edit}>
                {words.edit}
              </button>
            ) : null}
            <button
              type="button"
              className={`button danger ${chosen === false ? "meant" : ""}`}
              disabled={answer.isPending}
              onFocus={() => setChosen(false)}
              onKeyDown={pressed}
              onClick={() => send(false)}
            >
              {words.reject}
            </button>
            <button
              type="button"
              className={`button ${chosen ? "main" : ""}`}
              disabled={answer.isPending || wrong.length > 0}
              onFocus={() => setChosen(true)}
              onKeyDown={pressed}
              onClick={() => send(true)}
            >
              {approve}
            </button>
          </div>
        </div>
      ) : (
        <div className="banner warn">
          <strong>{words.mayNot}</strong>
          <span>{words.mayNotAdvice}</span>
        </div>
      )}
    </>
  );
}

function useAnswer({ id, digest }: Waiting, onAnswered: () => void) {
  const queries = useQueryClient();
  const { say, fail } = useAnnounce();
  return useMutation({
    mutationFn: (said: { agree: boolean; reason: string; edits: Record<string, unknown> }) =>
      act("POST", `/v1/approvals/${encodeURIComponent(id)}`, { ...said, digest }),
    onSuccess: (_, { agree }) => {
      // Gone from the list at once; the stream confirms it.
      queries.setQueryData<ApprovalList>(
        ["approvals"],
        (now) => now && { ...now, waiting: now.waiting.filter((each) => each.id !== id) },
      );
      say(agree ? words.done.yes : words.done.no, "good");
      onAnswered();
    },
    onError: fail,
    onSettled: () => queries.invalidateQueries({ queryKey: ["approvals"] }),
  });
}

// Kept nowhere: whoever opens the question again sees tokens.
function useReveal({ id }: Waiting) {
  const { fail } = useAnnounce();
  return useMutation({
    gcTime: 0,
    mutationFn: () => act<RevealedQuestion>("POST", `/v1/approvals/${encodeURIComponent(id)}/reveal`, {}),
    onError: fail,
  });
}

const hasTokens = ({ sentence, parts, files }: ShownQuestion): boolean =>
  [sentence, ...parts.map(({ text }) => text), ...files.map(({ preview }) => preview)].some((text) =>
    splitTokens(text).some(({ kind }) => kind),
  );

function About({
  item,
  sentence,
  request,
}: {
  item: Waiting;
  sentence: string;
  request: RequestView | null;
}) {
  const rule = item.rule;
  const by = rule
    ? rule.line
      ? words.ruleAt(rule.number, rule.file, rule.line)
      : words.ruleOf(rule.number, rule.file)
    : words.byGuard;
  const remit = request?.remit;
  const facts: [string, string][] = [
    [words.user, item.user],
    [words.rule, by],
    [words.editable, item.editable.join(", ") || words.nothingEditable],
  ];
  for (const [name, what] of fieldsOf(item.form)) facts.push([words.formField(name), what]);
  // Envelopes are sent without the fields that have their default.
  const chain = (remit as { chain?: string[] } | undefined)?.chain ?? [];
  if (chain.length) facts.push([words.through, chain.join(" → ")]);
  if (remit)
    facts.push([
      words.limits,
      words.limitsOf(duration(remit.time_ms), count(remit.tokens), remit.cost ? counted(remit.cost) : ""),
    ]);
  return (
    <>
      <p className="asks">
        <strong>{sentence}</strong>
        <Link href={`/runs/${item.run}/d/${item.delegation}`}>{words.openCall}</Link>
        <span className="soft">
          <Time at={item.asked_ms} />
        </span>
      </p>
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} className="fact">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

// Everything that would be sent, with hidden characters written out: by the server, so that every way to answer shows the same.
function Shown({ view }: { view: ShownQuestion }) {
  const parts = view.parts.filter(({ title }) => title !== ALSO_SENT);
  const also = view.parts.find(({ title }) => title === ALSO_SENT);
  return (
    <>
      {parts.map(({ title, text }) => (
        <Part key={title} title={title.charAt(0).toUpperCase() + title.slice(1)}>
          <Value value={text} whole />
        </Part>
      ))}
      {view.files.map((file) => (
        <Part key={file.digest + file.name} title={words.file(file.name)}>
          <p className="soft file-facts">{words.fileOf(file.media_type, bytes(file.size))}</p>
          <code className="digest">{file.url || words.digest(file.digest)}</code>
          {file.preview ? <Value value={file.preview} whole /> : null}
          {file.preview && !file.is_whole ? <p className="soft">{words.fileCut}</p> : null}
        </Part>
      ))}
      {also ? (
        <details>
          <summary>{words.also}</summary>
          <Value value={also.text} whole />
        </details>
      ) : null}
    </>
  );
}

function Content({ request }: { request: RequestView }) {
  const parts: [string, unknown][] = [
    [words.objective, request.objective],
    [words.input, readable(request.input) === request.objective ? "" : request.input],
    [words.because, request.reason],
  ];
  return (
    <>
      {parts.map(([title, value]) =>
        readable(value) ? (
          <Part key={title} title={title}>
            <Value value={value} />
          </Part>
        ) : null,
      )}
      <details>
        <summary>{words.whole}</summary>
        <Value value={request} />
      </details>
    </>
  );
}
