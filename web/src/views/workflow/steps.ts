// What is said of the steps of a workflow.

import type { components } from "@/api/operator";
import { texts } from "@/texts";

export type WorkflowStep = components["schemas"]["WorkflowStep"];
export type StepState = WorkflowStep["state"];

const OVER = new Set<StepState>([
  "success",
  "partial",
  "failed",
  "timeout",
  "refused",
  "cancelled",
  "unknown",
  "not done",
  "not begun",
]);

/** Whether nothing more happens. */
export const isOver = (state: StepState): boolean => OVER.has(state);

/** The word for a state of a step: a step is done, a run succeeds. */
export function wordOf(state: StepState): string {
  const names: Record<string, string> = texts.states;
  return texts.workflow.states[state] ?? names[state] ?? state;
}

/** Who does a step, or will. */
export function agentWords(step: Pick<WorkflowStep, "agent" | "capability">): string {
  if (step.agent) return step.agent;
  return step.capability ? texts.workflow.anybody(step.capability) : texts.workflow.nothing;
}

/** How many steps have a result, of those that are to be done. */
export function counted(steps: Pick<WorkflowStep, "state">[]): { done: number; all: number } {
  const wanted = steps.filter((step) => step.state !== "skipped");
  return {
    done: wanted.filter((step) => step.state === "success" || step.state === "partial").length,
    all: wanted.length,
  };
}
