// A draft of the team file, as plain text.

import { useId } from "react";
import { texts } from "@/texts";
import type { TeamView } from "@/views/policy/model";

const words = texts.policy;

export function Draft({
  file,
  draft,
  onChange,
}: {
  file: TeamView["file"];
  draft: string | null;
  onChange: (draft: string | null) => void;
}) {
  const id = useId();
  return (
    <section className="draft">
      <h2>{words.whatIf}</h2>
      <p className="soft">{words.whatIfHint}</p>
      {draft === null ? (
        <div>
          <button type="button" className="button" onClick={() => onChange(file?.text ?? "")}>
            {words.load}
          </button>
          {file ? null : <p className="soft">{words.loadMay}</p>}
        </div>
      ) : (
        <div className="field">
          <label htmlFor={id}>{words.draftLabel}</label>
          <textarea
            id={id}
            className="input"
            rows={18}
            spellCheck={false}
            value={draft}
            maxLength={100_000}
            onChange={(event) => onChange(event.target.value)}
          />
          <div>
            <button type="button" className="button plain" onClick={() => onChange(null)}>
              {words.discard}
            </button>
          </div>
        </div>
      )}
    </section>
  );
}
