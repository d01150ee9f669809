// The fields of a request that may be edited before it is approved, and what the edits change.

import { diffWordsWithSpace } from "diff";
import { texts } from "@/texts";
import { type Drafts, type EditableField, editedText } from "@/views/approvals/model";

const words = texts.approvals;

export function EditFields({
  fields,
  request,
  drafts,
  wrong,
  onChange,
  onDiscard,
}: {
  fields: EditableField[];
  request: Partial<Record<EditableField, unknown>>;
  drafts: Drafts;
  wrong: EditableField[];
  onChange: (drafts: Drafts) => void;
  onDiscard: () => void;
}) {
  return (
    <section className="edits">
      {fields.map((field, place) => {
        const before = editedText(request[field]);
        const text = drafts[field] ?? before;
        const id = `edit-${field}`;
        return (
          <div key={field} className="field">
            <label htmlFor={id}>{words.editField(field)}</label>
            <textarea
              id={id}
              className="input"
              rows={Math.min(12, text.split("\n").length + 2)}
              value={text}
              // The person has just asked to edit.
              // eslint-disable-next-line jsx-a11y/no-autofocus
              autoFocus={place === 0}
              aria-invalid={wrong.includes(field)}
              onChange={(event) => onChange({ ...drafts, [field]: event.target.value })}
              onKeyDown={(event) => (event.key === "Escape" ? event.currentTarget.blur() : undefined)}
            />
            {wrong.includes(field) ? (
              <span className="wrong" role="alert">
                {words.notJson}
              </span>
            ) : typeof request[field] === "string" || field === "objective" ? null : (
              <span className="hint">{words.jsonHint}</span>
            )}
            {text === before ? null : <Changes before={before} now={text} />}
          </div>
        );
      })}
      <div>
        <button type="button" className="button plain" onClick={onDiscard}>
          {words.discard}
        </button>
      </div>
    </section>
  );
}

function Changes({ before, now }: { before: string; now: string }) {
  return (
    <p className="changes">
      <span className="label">{words.changes}</span>{" "}
      {diffWordsWithSpace(before, now).map((part, place) =>
        part.added ? (
          <ins key={place}>{part.value}</ins>
        ) : part.removed ? (
          <del key={place}>{part.value}</del>
        ) : (
          <span key={place}>{part.value}</span>
        ),
      )}
    </p>
  );
}
