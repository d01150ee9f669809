// One operation: what it takes, what it returns, and a command that sends it.

import { command, type Entry, type Operation, type Schema } from "./model";
import { Fields, Prose, TypeName } from "./parts";
import { texts } from "./texts";

export function OperationCard({ entry, schemas }: { entry: Entry; schemas: Record<string, Schema> }) {
  const { method, path, operation } = entry;
  const { operationId, summary = "", description = "", parameters = [], requestBody, security } = operation;
  const permission = operation["x-remit-permission"];
  return (
    <article id={operationId} className="docs-card" aria-label={`${method} ${path}`}>
      <h3>
        <span className={`docs-method ${method.toLowerCase()}`}>{method}</span>
        <code>{path}</code>
        <a className="docs-anchor" href={`#${operationId}`}>
          {operationId}
        </a>
      </h3>
      <Prose text={summary} />
      {description === summary ? null : <Prose text={description} soft />}
      <p className="docs-access">
        {security?.length === 0 ? <span className="badge good">{texts.open}</span> : null}
        {permission ? <span className="badge warn">{texts.permission(permission)}</span> : null}
      </p>
      {parameters.length ? (
        <>
          <h4>{texts.parameters}</h4>
          <Fields
            rows={parameters.map((each) => ({
              name: each.name,
              place: each.in,
              required: each.required === true,
              schema: { ...each.schema, ...(each.description ? { description: each.description } : {}) },
            }))}
          />
        </>
      ) : null}
      {requestBody ? (
        <>
          <h4>{texts.body}</h4>
          <Content content={requestBody.content} />
        </>
      ) : null}
      <h4>{texts.responses}</h4>
      <Responses responses={operation.responses} />
      <details>
        <summary>{texts.example}</summary>
        <pre className="docs-code" tabIndex={0} role="region" aria-label={texts.example}>
          {command(entry, location.origin, schemas)}
        </pre>
      </details>
    </article>
  );
}

function Content({ content }: { content: Record<string, { schema?: Schema }> }) {
  return (
    <ul>
      {Object.entries(content).map(([type, { schema = {} }]) => (
        <li key={type}>
          <span className="soft">{type}</span> <TypeName schema={schema} />
        </li>
      ))}
    </ul>
  );
}

/** The responses; those that say the same with the same type are shown together. */
function Responses({ responses }: Pick<Operation, "responses">) {
  const rows = new Map<string, { statuses: string[]; response: Operation["responses"][string] }>();
  for (const [status, response] of Object.entries(responses)) {
    const key = JSON.stringify([response.description, response.content]);
    const row = rows.get(key) ?? { statuses: [], response };
    row.statuses.push(status);
    rows.set(key, row);
  }
  const all = [...rows.values()];
  const good = all.filter((row) => /^[23]/.test(row.statuses[0] ?? ""));
  const bad = all.filter((row) => !good.includes(row));
  const list = (found: typeof all) => (
    <ul className="docs-responses">
      {found.map(({ statuses, response }) => (
        <li key={statuses[0]}>
          <code>{statuses.join(", ")}</code> {response.description}
          {response.content ? <Content content={response.content} /> : null}
        </li>
      ))}
    </ul>
  );
  return (
    <>
      {list(good)}
      {bad.length ? (
        <details>
          <summary>{bad.flatMap((row) => row.statuses).join(", ")}</summary>
          {list(bad)}
        </details>
      ) : null}
    </>
  );
}
