// What waits for a person's decision: the list, the whole request of one, and answers to one or several.

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Keyboard } from "lucide-react";
import { useCallback, useRef, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { act } from "@/api/client";
import { useAnnounce } from "@/look/announce";
import { duration } from "@/look/format";
import { useKeys } from "@/look/keys";
import { Badge, Empty, KeysDialog, Loading, Time, Trouble, useNow } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { QuestionDetail, type QuestionHandle } from "@/views/approvals/QuestionDetail";
import { SelectedBar } from "@/views/approvals/SelectedBar";
import { useApprovals } from "@/views/approvals/live";
import {
  afterRemoval,
  type Answered,
  beside,
  type Outcomes,
  stillThere,
  type Waiting,
} from "@/views/approvals/model";
import { Marked } from "@/views/delegation/Value";
import "../delegation/delegation.css";
import "./approvals.css";

const words = texts.approvals;

export default function ApprovalsView() {
  const { data, error, refetch } = useApprovals({ live: true });
  const [, go] = useLocation();
  const chosen = new URLSearchParams(useSearch()).get("id");
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [help, setHelp] = useState(false);
  const detail = useRef<QuestionHandle>(null);
  const waiting = data?.waiting ?? [];
  const ids = waiting.map((each) => each.id);
  const selected = stillThere(picked, ids);
  // The first question stays shown although others come and go: an answer must not hit another one.
  const [first, setFirst] = useState<string | null>(null);
  if (first === null && ids[0] !== undefined) setFirst(ids[0]);
  const shown = chosen ?? first;
  const choose = useCallback(
    (id: string | null, replace = false) =>
      go(id === null ? "/approvals" : `/approvals?id=${encodeURIComponent(id)}`, { replace }),
    [go],
  );
  const toggle = (id: string) =>
    setPicked((now) => {
      const next = new Set(now);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const move = (step: 1 | -1) => choose(beside(ids, shown, step), true);
  const open = waiting.find((each) => each.id === shown);
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => (open ? toggle(open.id) : undefined),
    y: () => detail.current?.choose(true),
    n: () => detail.current?.choose(false),
    e: () => detail.current?.edit(),
    o: () => (open ? go(`/runs/${open.run}/d/${open.delegation}`) : undefined),
    Escape: () => setPicked(new Set()),
    "?": () => setHelp(true),
  });
  const several = useSeveral(() => setPicked(new Set()));
  const answered = (id: string) => {
    const next = afterRemoval(
      ids,
      ids.filter((each) => each !== id),
      id,
    );
    setFirst(next);
    if (chosen) choose(next, true);
  };
  return (
    <div className={`decisions approvals ${chosen ? "one" : ""}`}>
      <ViewHead title={words.title}>
        <button
          type="button"
          className="button plain icon"
          aria-label={texts.common.keys}
          onClick={() => setHelp(true)}
        >
          <Keyboard size={16} aria-hidden />
        </button>
      </ViewHead>
      {error && !data ? <Trouble error={error} again={() => void refetch()} /> : null}
      {!data && !error ? <Loading /> : null}
      {data ? (
        <div className="inbox">
          <section className="card list" aria-label={words.list}>
            <div className="head">
              <h2>{words.waiting}</h2>
              <span className="soft">{waiting.length}</span>
            </div>
            {waiting.length ? (
              <ul>
                {waiting.map((each) => (
                  <Line
                    key={each.id}
                    item={each}
                    current={each.id === shown}
                    selected={selected.has(each.id)}
                    onChoose={() => choose(each.id)}
                    onSelect={() => toggle(each.id)}
                  />
                ))}
              </ul>
            ) : (
              <Empty title={words.none.title} command={words.none.command}>
                <p>{words.none.advice}</p>
              </Empty>
            )}
            <Lately answered={data.answered} onChoose={choose} />
          </section>
          <div className="chosen">
            {selected.size ? (
              <SelectedBar
                count={selected.size}
                busy={several.isPending}
                onClear={() => setPicked(new Set())}
                onDecide={(agree, reason) =>
                  several.mutate({ items: waiting.filter((each) => selected.has(each.id)), agree, reason })
                }
              />
            ) : null}
            {shown ? (
              <QuestionDetail
                key={shown}
                ref={detail}
                id={shown}
                onBack={() => choose(null)}
                onAnswered={() => answered(shown)}
              />
            ) : (
              <p className="soft">{words.choose}</p>
            )}
          </div>
        </div>
      ) : null}
      <KeysDialog open={help} onClose={() => setHelp(false)} keys={words.keys} />
    </div>
  );
}

function useSeveral(done: () => void) {
  const queries = useQueryClient();
  const { say, fail } = useAnnounce();
  return useMutation({
    mutationFn: ({ items, agree, reason }: { items: Waiting[]; agree: boolean; reason: string }) =>
      act<Outcomes>("POST", "/v1/approvals", {
        answers: items.map(({ id, digest }) => ({ id, digest, agree, reason })),
      }),
    onSuccess: ({ outcomes }) => {
      const given = outcomes.filter((each) => each.given).length;
      say(words.doneSeveral(given, outcomes.length), given === outcomes.length ? "good" : "bad");
      done();
    },
    onError: fail,
    onSettled: () => queries.invalidateQueries({ queryKey: ["approvals"] }),
  });
}

function Line({
  item,
  current,
  selected,
  onChoose,
  onSelect,
}: {
  item: Waiting;
  current: boolean;
  selected: boolean;
  onChoose: () => void;
  onSelect: () => void;
}) {
  const left = item.expires_ms - useNow();
  return (
    <li className={current ? "current" : ""}>
      <input
        type="checkbox"
        checked={selected}
        onChange={onSelect}
        disabled={!item.may_answer}
        aria-label={words.select(item.question)}
      />
      <button type="button" onClick={onChoose} aria-current={current ? "true" : undefined}>
        <strong>
          <Marked text={item.question} />
        </strong>
        <span className="soft">{words.asks(item.origin, item.target)}</span>
        <span className="one-line">
          <Marked text={item.objective} />
        </span>
        <span className="meta">
          <span>{item.user}</span>
          <Time at={item.asked_ms} />
          <span>{left > 0 ? words.leftTime(duration(left)) : words.expired}</span>
        </span>
      </button>
    </li>
  );
}

function Lately({ answered, onChoose }: { answered: Answered[]; onChoose: (id: string) => void }) {
  if (!answered.length) return null;
  return (
    <>
      <div className="head">
        <h2>{words.lately}</h2>
      </div>
      <ul className="lately">
        {answered.map((each) => (
          <li key={each.id}>
            <button type="button" onClick={() => onChoose(each.id)}>
              <span>
                <Badge tone={each.agreed ? "good" : "bad"}>
                  {each.agreed ? words.agreedWord : words.rejectedWord}
                </Badge>{" "}
                <Marked text={each.question} />
              </span>
              <span className="meta">
                <span>{words.by(each.by || words.answered.nobody)}</span>
                {each.at_ms ? <Time at={each.at_ms} /> : null}
              </span>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}
