// The small parts of the page: text, types, tables of fields, schemas.

import { Fragment } from "react";
import { limits, parts, type Schema } from "./model";
import { texts } from "./texts";

/** A text with `code` in it; paragraphs are separated by empty lines. */
export function Prose({ text, soft = false }: { text: string; soft?: boolean }) {
  if (!text) return null;
  return (
    <>
      {text.split(/\n\s*\n/).map((paragraph, index) => (
        <p key={index} className={soft ? "soft" : undefined}>
          <Inline text={paragraph} />
        </p>
      ))}
    </>
  );
}

function Inline({ text }: { text: string }) {
  return text.split("`").map((each, index) => (index % 2 ? <code key={index}>{each}</code> : each));
}

export function TypeName({ schema }: { schema: Schema }) {
  return (
    <span className="docs-type">
      {parts(schema, texts.anything).map((part, index) => (
        <Fragment key={index}>
          {typeof part === "string" ? part : <a href={`#schema-${part.schema}`}>{part.schema}</a>}
        </Fragment>
      ))}
    </span>
  );
}

interface Row {
  name: string;
  place?: string;
  required: boolean;
  schema: Schema;
}

export function Fields({ rows }: { rows: Row[] }) {
  return (
    <dl className="docs-fields">
      {rows.map(({ name, place, required, schema }) => (
        <div key={`${place ?? ""}${name}`}>
          <dt>
            <code>{name}</code>
            <small>{[place, required ? texts.required : texts.optional].filter(Boolean).join(", ")}</small>
          </dt>
          <dd>
            <TypeName schema={schema} /> <small>{notes(schema)}</small>
            <Prose text={schema.description ?? ""} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function notes(schema: Schema): string {
  const fallback = schema.default;
  // Null and empty defaults only repeat that the field is optional.
  const says = fallback !== undefined && fallback !== null && JSON.stringify(fallback).length > 2;
  return [limits(schema), says ? texts.fallback(JSON.stringify(fallback)) : ""].filter(Boolean).join(", ");
}

export function SchemaCard({ name, schema }: { name: string; schema: Schema }) {
  const required = schema.required ?? [];
  const rows = Object.entries(schema.properties ?? {}).map(([field, value]) => ({
    name: field,
    required: required.includes(field),
    schema: value,
  }));
  rows.sort((one, other) => Number(other.required) - Number(one.required));
  return (
    <article id={`schema-${name}`} className="docs-card" aria-label={name}>
      <h3>
        <code>{name}</code>
      </h3>
      <Prose text={schema.description ?? ""} soft />
      {rows.length ? <Fields rows={rows} /> : <TypeName schema={schema} />}
    </article>
  );
}
