// The workflows of a run: their steps as a graph and as a list, with the state of each, while they happen.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, useParams } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { follow } from "@/api/stream";
import { duration } from "@/look/format";
import { Empty, Loading, State, Trouble } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { nameIn } from "@/views/sessions/names";
import { Graph } from "./Graph";
import { agentWords, counted, isOver, wordOf } from "./steps";
import "./workflow.css";

type RunWorkflows = components["schemas"]["RunWorkflows"];
type WorkflowGraph = components["schemas"]["WorkflowGraph"];
type Step = components["schemas"]["WorkflowStep"];

const said = texts.workflow;
// Events come in bursts; a person sees no difference.
const TOGETHER_MS = 300;

export default function WorkflowView() {
  const run = nameIn(useParams<{ run: string }>().run);
  const key = ["workflow", run];
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => get<RunWorkflows>(`/v1/runs/${encodeURIComponent(run)}/workflow`, {}, signal),
  });
  const workflows = query.data?.workflows ?? [];
  const over = query.data !== undefined && workflows.every((each) => isOver(each.state));
  useRunEvents(run, key, query.data !== undefined && !over);
  const path = `/runs/${encodeURIComponent(run)}`;
  return (
    <>
      <ViewHead title={said.title}>
        <code className="one-line workflow-run">{run}</code>
      </ViewHead>
      <nav className="tabs" aria-label={said.tabs}>
        <Link className="tab" href={path}>
          {said.tree}
        </Link>
        <Link className="tab" href={`${path}/workflow`} aria-current="page">
          {said.title}
        </Link>
      </nav>
      {query.isPending ? <Loading /> : null}
      {query.isError && !query.data ? (
        <Trouble error={query.error} again={() => void query.refetch()} />
      ) : null}
      {query.data && workflows.length === 0 ? (
        <Empty title={said.none}>
          <p>{said.noneHint}</p>
          <Link className="button" href={path}>
            {said.toDelegations}
          </Link>
        </Empty>
      ) : null}
      {workflows.map((each) => (
        <Workflow key={each.delegation} workflow={each} path={path} root={each.delegation === run} />
      ))}
    </>
  );
}

/** Read the workflows anew when something happens in the run. */
function useRunEvents(run: string, key: string[], live: boolean): void {
  const queries = useQueryClient();
  const name = key.join(" ");
  useEffect(() => {
    if (!live) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = follow(
      `/v1/delegations/${encodeURIComponent(run)}/events`,
      {},
      {
        onEvent: (event) => {
          if (event.type === "delta") return;
          timer ??= setTimeout(() => {
            timer = undefined;
            void queries.invalidateQueries({ queryKey: ["workflow", run] });
          }, TOGETHER_MS);
        },
      },
    );
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [queries, run, live, name]);
}

function Workflow({ workflow, path, root }: { workflow: WorkflowGraph; path: string; root: boolean }) {
  const { done, all } = counted(workflow.steps);
  return (
    <section className="card" aria-label={workflow.name}>
      <div className="head">
        <h2>{workflow.name}</h2>
        <State state={workflow.state} />
        <span className="soft" aria-live="polite">
          {said.progress(done, all)}
        </span>
        {root ? null : (
          <Link
            className="faint workflow-place one-line"
            href={`${path}/d/${encodeURIComponent(workflow.delegation)}`}
          >
            {said.within(workflow.delegation.slice(workflow.delegation.indexOf(".")))}
          </Link>
        )}
      </div>
      {workflow.planned ? <Graph workflow={workflow} path={path} /> : null}
      <div className="body">
        {workflow.planned ? null : <p className="soft">{said.unplanned}</p>}
        <Steps workflow={workflow} path={path} />
      </div>
    </section>
  );
}

function Steps({ workflow, path }: { workflow: WorkflowGraph; path: string }) {
  return (
    <div className="table-wrap">
      <table className="table workflow-steps">
        <caption className="unseen">{said.steps}</caption>
        <thead>
          <tr>
            <th scope="col">{said.step}</th>
            <th scope="col">{said.state}</th>
            <th scope="col">{said.agent}</th>
            <th scope="col">{said.after}</th>
            <th scope="col">{said.attempts}</th>
            <th scope="col" className="number">
              {said.duration}
            </th>
          </tr>
        </thead>
        <tbody>
          {workflow.steps.map((step) => (
            <StepRow key={step.name} step={step} path={path} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function StepRow({ step, path }: { step: Step; path: string }) {
  const conditions = [
    step.when ? said.whenever(step.when) : "",
    step.optional ? said.optional : "",
    step.fallback.length ? said.fallback(step.fallback.join(", ")) : "",
  ].filter(Boolean);
  const took = step.attempts.reduce((sum, each) => sum + each.duration_ms, 0);
  return (
    <tr>
      <th scope="row" className="workflow-step">
        <span>{step.title || step.name}</span>
        <small>{step.name}</small>
      </th>
      <td>
        <State state={step.state} word={wordOf(step.state)} />
        {step.why ? <p className="workflow-why">{step.why}</p> : null}
      </td>
      <td data-label={said.agent}>{agentWords(step)}</td>
      <td data-label={said.after}>
        {step.after.join(", ") || said.nothing}
        {conditions.length ? <small className="workflow-conditions">{conditions.join(" · ")}</small> : null}
      </td>
      <td data-label={said.attempts}>
        {step.attempts.length === 0 ? said.nothing : null}
        <ul>
          {step.attempts.map((each, place) => (
            <li key={each.delegation} className="row">
              <Link href={`${path}/d/${encodeURIComponent(each.delegation)}`}>
                {each.agent}
                {place ? ` · ${said.retry(place + 1)}` : ""}
              </Link>
              {step.attempts.length > 1 ? <State state={each.state} word={wordOf(each.state)} /> : null}
            </li>
          ))}
        </ul>
      </td>
      <td className="number" data-label={said.duration}>
        {step.attempts.length ? duration(took) : said.nothing}
      </td>
    </tr>
  );
}
