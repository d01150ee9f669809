// The rows of the audit log about a delegation, and whether they are as they were written.

import { Link } from "wouter";
import { State, Time } from "@/look/parts";
import { texts } from "@/texts";
import type { Detail } from "@/views/delegation/model";

const words = texts.delegation;

export function Records({ detail }: { detail: Detail }) {
  const columns = words.recordColumns;
  const { audit } = detail;
  return (
    <div className="stack">
      <p className={`banner ${audit.intact === null ? "" : audit.intact ? "good" : "bad"}`} role="status">
        {audit.says}
      </p>
      <div className="table-wrap" role="region" aria-label={words.records} tabIndex={0}>
        <table className="table">
          <caption className="unseen">{words.records}</caption>
          <thead>
            <tr>
              <th scope="col" className="number">
                {columns.seq}
              </th>
              <th scope="col">{columns.kind}</th>
              <th scope="col">{columns.at}</th>
              <th scope="col">{columns.intact}</th>
            </tr>
          </thead>
          <tbody>
            {audit.rows.map((row) => (
              <tr key={row.seq}>
                <td className="number">{row.seq}</td>
                <td>{row.kind}</td>
                <td>
                  <Time at={row.at_ms} />
                </td>
                <td>
                  <Intact intact={row.intact} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {detail.left_out > 0 ? <p className="soft">{words.leftOut(detail.left_out)}</p> : null}
      <Link href={`/audit?run=${encodeURIComponent(detail.run)}`}>{words.auditLink}</Link>
    </div>
  );
}

function Intact({ intact }: { intact: boolean | null }) {
  if (intact === null) return <State state="unknown" word={words.unchecked} />;
  return intact ? (
    <State state="success" word={words.intact} />
  ) : (
    <State state="failed" word={words.broken} />
  );
}
