// The fields of a call that is not made, with the agents, capabilities and tools of the team as suggestions.

import { useId } from "react";
import { texts } from "@/texts";
import type { CallForm, TeamView } from "@/views/policy/model";

const words = texts.policy;

export function CallFields({
  form,
  onChange,
  team,
}: {
  form: CallForm;
  onChange: (form: CallForm) => void;
  team: TeamView;
}) {
  const names = team.agents.map((each) => each.name);
  const callee = team.agents.find((each) => each.name === form.to.trim());
  const codes = callee ? callee.capabilities : [...new Set(team.agents.flatMap((each) => each.capabilities))];
  const field = (name: keyof CallForm, label: string, suggestions: string[] = [], hint = "") => (
    <Field
      label={label}
      value={form[name]}
      suggestions={suggestions}
      hint={hint}
      onChange={(value) => onChange({ ...form, [name]: value })}
    />
  );
  return (
    <>
      <div className="pair">
        {field("from", words.from, [words.userOrigin, ...names])}
        {field("to", words.to, names)}
      </div>
      {field("objective", words.objective)}
      <div className="pair">
        {field("capability", words.capability, codes)}
        {field("user", words.user)}
      </div>
      <Field
        label={words.input}
        value={form.input}
        hint={words.inputHint}
        long
        onChange={(input) => onChange({ ...form, input })}
      />
      <details>
        <summary>{words.more}</summary>
        <div className="stack">
          <div className="pair">
            {field("tokens", words.maxTokens)}
            {field("cost", words.maxCost)}
          </div>
          <div className="pair">
            {field("deadline", words.deadline)}
            {field("tools", words.tools, [], words.toolsHint)}
          </div>
        </div>
      </details>
    </>
  );
}

function Field({
  label,
  value,
  onChange,
  suggestions = [],
  hint = "",
  long = false,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  suggestions?: string[];
  hint?: string;
  long?: boolean;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {long ? (
        <textarea
          id={id}
          className="input"
          rows={2}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      ) : (
        <input
          id={id}
          className="input"
          list={suggestions.length ? `${id}-list` : undefined}
          value={value}
          onChange={(event) => onChange(event.target.value)}
          autoComplete="off"
        />
      )}
      {suggestions.length ? (
        <datalist id={`${id}-list`}>
          {suggestions.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      ) : null}
      {hint ? <span className="hint">{hint}</span> : null}
    </div>
  );
}
