// The steps of a workflow as boxes, with lines to those that come after them.

import { type CSSProperties, useId, useMemo } from "react";
import { Link } from "wouter";
import type { components } from "@/api/operator";
import { toneOf } from "@/look/format";
import { texts } from "@/texts";
import { boxes, layered, line, SIZE } from "./layout";
import { agentWords, type StepState, type WorkflowStep, wordOf } from "./steps";

type WorkflowGraph = components["schemas"]["WorkflowGraph"];

const said = texts.workflow;

const toneOfStep = (state: StepState): string => (state === "not done" ? "calm" : toneOf(state));

export function Graph({ workflow, path }: { workflow: WorkflowGraph; path: string }) {
  const arrow = useId();
  // The places depend on the plan alone: nothing moves while the states change.
  const plan = JSON.stringify(workflow.steps.map(({ name, after }) => ({ name, after })));
  const { picture, lines } = useMemo(() => {
    const found = layered(JSON.parse(plan) as { name: string; after: string[] }[]);
    return { picture: boxes(found), lines: found.lines };
  }, [plan]);
  const byName = new Map(workflow.steps.map((step) => [step.name, step]));
  const size: CSSProperties = { width: picture.width, height: picture.height };
  return (
    // Wide graphs scroll, also by keyboard.
    <div className="workflow-scroll" role="region" aria-label={said.graph(workflow.name)} tabIndex={0}>
      <div className="workflow-graph" style={size}>
        <svg width={picture.width} height={picture.height} aria-hidden>
          <defs>
            <marker
              id={arrow}
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="7"
              markerHeight="7"
              orient="auto"
            >
              <path d="M 0 0.5 L 7 4 L 0 7.5 z" className="workflow-arrow" />
            </marker>
          </defs>
          {lines.map((names) => {
            const idle = names.some((name) => byName.get(name)?.state === "skipped");
            return (
              <path
                key={names.join(" ")}
                d={line(names, picture.at)}
                className={idle ? "workflow-line idle" : "workflow-line"}
                markerEnd={`url(#${arrow})`}
              />
            );
          })}
        </svg>
        <ul>
          {workflow.steps.map((step) => {
            const at = picture.at.get(step.name);
            return at ? <StepBox key={step.name} step={step} x={at.x} y={at.y} path={path} /> : null;
          })}
        </ul>
      </div>
    </div>
  );
}

function StepBox({ step, x, y, path }: { step: WorkflowStep; x: number; y: number; path: string }) {
  const place: CSSProperties = {
    transform: `translate(${x}px, ${y}px)`,
    width: SIZE.width,
    height: SIZE.height,
  };
  const last = step.attempts.at(-1);
  const word = wordOf(step.state);
  const tries = step.attempts.length > 1 ? ` · ${said.retry(step.attempts.length)}` : "";
  const inside = (
    <>
      <strong className="one-line">{step.title || step.name}</strong>
      <span className="one-line soft">{agentWords(step)}</span>
      <span className="workflow-word one-line">
        {word}
        {tries}
      </span>
    </>
  );
  const name = `workflow-box ${toneOfStep(step.state)} ${step.state === "skipped" ? "idle" : ""}`;
  return (
    <li style={place} title={step.why}>
      {last ? (
        <Link
          href={`${path}/d/${encodeURIComponent(last.delegation)}`}
          className={name}
          aria-label={said.open(step.title || step.name, word)}
        >
          {inside}
        </Link>
      ) : (
        <div className={name}>{inside}</div>
      )}
    </li>
  );
}
