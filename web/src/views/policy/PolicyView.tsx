// What would happen to a call: the verdict of every guard, now and with a draft of the team file.

import { useMutation, useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useState } from "react";
import { act, get } from "@/api/client";
import { Loading, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { Words } from "@/views/delegation/Value";
import { CallFields } from "@/views/policy/CallFields";
import { Draft } from "@/views/policy/Draft";
import { Explained } from "@/views/policy/Explained";
import {
  type CallForm,
  EMPTY,
  type Guards,
  type PolicyAnswer,
  problemsIn,
  questionOf,
  type TeamView,
} from "@/views/policy/model";
import "../delegation/delegation.css";
import "./policy.css";

const words = texts.policy;

export default function PolicyView() {
  const team = useQuery({
    queryKey: ["team"],
    queryFn: ({ signal }) => get<TeamView>("/v1/team", undefined, signal),
  });
  const [form, setForm] = useState<CallForm>(EMPTY);
  const [draft, setDraft] = useState<string | null>(null);
  const asked = useMutation({
    mutationFn: () => act<PolicyAnswer>("POST", "/v1/policy/explain", questionOf(form, draft)),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    asked.mutate();
  };
  return (
    <div className="decisions policy">
      <ViewHead title={words.title} />
      <p className="soft">{words.intro}</p>
      {team.error ? <Trouble error={team.error} again={() => void team.refetch()} /> : null}
      {team.isPending ? <Loading rows={4} /> : null}
      {team.data ? (
        <div className="halves">
          <form className="card call-form" onSubmit={submit} aria-label={words.form}>
            <CallFields form={form} onChange={setForm} team={team.data} />
            <Draft file={team.data.file} draft={draft} onChange={setDraft} />
            <div className="acts">
              <button type="submit" className="button main" disabled={asked.isPending || !form.to.trim()}>
                {words.explain}
              </button>
            </div>
          </form>
          <div className="stack" aria-live="polite">
            {asked.error ? <Refused error={asked.error} /> : null}
            {asked.isSuccess ? <Explained answer={asked.data} /> : null}
            {asked.isIdle || asked.isPending ? <GuardList /> : null}
          </div>
        </div>
      ) : null}
    </div>
  );
}

/** Why the question could not be answered, with each line of a draft that is wrong. */
function Refused({ error }: { error: unknown }) {
  const problems = problemsIn(error);
  return (
    <div className="stack">
      <Trouble error={error} />
      {problems.length ? (
        <ul className="card body-only lines">
          {problems.map(({ path, message }) => (
            <li key={`${path} ${message}`}>
              <code>{path}</code> <Words text={message} />
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

function GuardList() {
  const { data } = useQuery({
    queryKey: ["guards"],
    queryFn: ({ signal }) => get<Guards>("/v1/policy/guards", undefined, signal),
  });
  if (!data) return null;
  return (
    <section className="card">
      <div className="head">
        <h2>{words.guards}</h2>
      </div>
      <div className="table-wrap" role="region" aria-label={words.guards} tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th scope="col">{words.guard}</th>
              <th scope="col">{words.passes}</th>
            </tr>
          </thead>
          <tbody>
            {data.guards.map((each) => (
              <tr key={each.name}>
                <td>
                  <code>{each.name}</code>
                </td>
                <td>{each.says}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
