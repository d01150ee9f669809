// What the callee saw, beside what was held back from it and by what.

import { count } from "@/look/format";
import { Badge } from "@/look/parts";
import { texts } from "@/texts";
import { type Detail, filterLines, heldAnything, type MessageView, readable } from "@/views/delegation/model";
import { Marked, Part, Value, Words } from "@/views/delegation/Value";

const words = texts.delegation;

export function Seen({ detail }: { detail: Detail }) {
  return (
    <div className="sides">
      <Shown detail={detail} />
      <HeldBack detail={detail} />
    </div>
  );
}

function Shown({ detail }: { detail: Detail }) {
  const { shown } = detail;
  const texts_: [string, unknown, string?][] = [
    [words.objective, shown.objective],
    [words.input, readable(shown.input) === shown.objective ? "" : shown.input],
    [words.hints, shown.hints.join("\n")],
    [words.handoff, shown.handoff],
    [words.conversationSummary, shown.summary, words.begin],
    [words.workspace, shown.workspace, words.begin],
  ];
  return (
    <section className="side saw">
      <h2>{words.saw(detail.target)}</h2>
      {shown.tokens === null ? null : (
        <p className="soft">{words.contextTokens(count(shown.tokens), count(detail.remit.context_tokens))}</p>
      )}
      {texts_.map(([title, value, aside]) =>
        readable(value) ? (
          <Part key={title} title={title} aside={aside ?? ""}>
            <Value value={value} />
          </Part>
        ) : null,
      )}
      <Part title={words.messages}>
        {shown.messages.length ? (
          <ul className="messages">
            {shown.messages.map((each, place) => (
              <Said key={each.seq || place} message={each} />
            ))}
          </ul>
        ) : (
          <p className="soft">{words.noMessages}</p>
        )}
        {shown.seen_before ? <p className="soft">{words.seenBefore(shown.seen_before)}</p> : null}
      </Part>
      {shown.notes.length ? (
        <Part title={words.notes}>
          <ul className="lines">
            {shown.notes.map((note, place) => (
              <li key={place}>
                <Badge>{words.noteKinds[note.kind]}</Badge> <Marked text={note.text} />
                <span className="soft"> {note.by || words.saysUser}</span>
              </li>
            ))}
          </ul>
        </Part>
      ) : null}
      <Part title={words.mayUse} aside={words.byTeamNow}>
        <Names names={shown.tools} />
      </Part>
      <Part title={words.mayCall} aside={words.byTeamNow}>
        <Names names={shown.targets} />
      </Part>
      {shown.sees.length ? (
        <Part title={words.sees} aside={words.byTeamNow}>
          <Names names={shown.sees} />
        </Part>
      ) : null}
    </section>
  );
}

function HeldBack({ detail }: { detail: Detail }) {
  const held = detail.held_back;
  const filter = filterLines(held.filter);
  const lists: [string, { what: string; why: string }[]][] = [
    [words.parts, held.parts],
    [words.heldTools, held.tools],
    [words.heldTargets, held.targets],
  ];
  return (
    <section className="side held">
      <h2>{words.heldBack}</h2>
      {heldAnything(detail) ? null : <p className="soft">{words.nothingHeld}</p>}
      {detail.parent === null ? null : (
        <Part title={words.filter}>
          {filter.length ? (
            <dl className="facts">
              {filter.map(([name, value]) => (
                <div key={name} className="fact">
                  <dt>
                    <code>{name}</code>
                  </dt>
                  <dd>{value}</dd>
                </div>
              ))}
            </dl>
          ) : (
            <p className="soft">{words.noFilter}</p>
          )}
        </Part>
      )}
      {held.messages.length || held.earlier ? (
        <Part title={words.heldMessages}>
          <ul className="messages">
            {held.messages.map(({ message, by, why }) => (
              <Said key={message.seq} message={message} by={words.heldBy[by]} why={why} />
            ))}
          </ul>
          {held.earlier ? <p className="soft">{words.earlier(held.earlier)}</p> : null}
        </Part>
      ) : null}
      {held.redacted.length ? <Redacted detail={detail} /> : null}
      {lists.map(([title, parts]) =>
        parts.length ? (
          <Part key={title} title={title}>
            <ul className="lines">
              {parts.map(({ what, why }) => (
                <li key={what}>
                  <code>{what}</code>{" "}
                  <span className="soft">
                    <Words text={why} />
                  </span>
                </li>
              ))}
            </ul>
          </Part>
        ) : null,
      )}
    </section>
  );
}

function Said({ message, by, why }: { message: MessageView; by?: string; why?: string }) {
  return (
    <li className="message">
      <div className="who">
        <strong>{message.name || message.role}</strong>
        {by ? <Badge tone="warn">{by}</Badge> : null}
      </div>
      <Value value={message.text} />
      {why ? (
        <small>
          <Words text={why} />
        </small>
      ) : null}
    </li>
  );
}

function Redacted({ detail }: { detail: Detail }) {
  const columns = words.redactedColumns;
  return (
    <Part title={words.redacted}>
      <div className="table-wrap" role="region" aria-label={words.redacted} tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              <th scope="col">{columns.place}</th>
              <th scope="col">{columns.kind}</th>
              <th scope="col" className="number">
                {columns.count}
              </th>
              <th scope="col">{columns.callee}</th>
            </tr>
          </thead>
          <tbody>
            {detail.held_back.redacted.map((each) => (
              <tr key={`${each.place} ${each.kind}`}>
                <td>
                  <code>{each.place}</code>
                </td>
                <td>{each.kind}</td>
                <td className="number">{each.count}</td>
                <td>{each.in_clear ? words.sawClear : words.sawToken}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Part>
  );
}

function Names({ names }: { names: string[] }) {
  if (!names.length) return <p className="soft">{words.none}</p>;
  return (
    <p className="names">
      {names.map((name) => (
        <code key={name}>{name}</code>
      ))}
    </p>
  );
}
