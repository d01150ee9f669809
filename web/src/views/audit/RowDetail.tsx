// One row of the record: its content, its digest, and what it belongs to.

import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import { get } from "@/api/client";
import type { components } from "@/api/operator";
import { exactTime } from "@/look/format";
import { Badge, CopyButton, Loading, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { agentOf, runPath, sentenceOf, toneOfRow } from "./rows";

type AuditRow = components["schemas"]["AuditRowView"];

const said = texts.audit;

export function RowDetail({ seq, close }: { seq: number; close: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const query = useQuery({
    queryKey: ["audit", "row", seq],
    queryFn: ({ signal }) => get<AuditRow>(`/v1/audit/${seq}`, {}, signal),
  });
  useEffect(() => {
    heading.current?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <section className="card audit-detail" aria-label={said.detail.title(seq)}>
      <div className="head">
        <h2 ref={heading}>{said.detail.title(seq)}</h2>
        <button type="button" className="button plain icon" onClick={close} aria-label={texts.common.close}>
          <X size={14} aria-hidden />
        </button>
      </div>
      <div className="body stack">
        {query.isPending ? <Loading rows={5} /> : null}
        {query.isError ? <Trouble error={query.error} again={() => void query.refetch()} /> : null}
        {query.data ? <Detail row={query.data} /> : null}
      </div>
    </section>
  );
}

function Detail({ row }: { row: AuditRow }) {
  const { record } = row;
  const content = record ? JSON.stringify(record.body, null, 2) : "";
  const run = record ? runPath(record) : null;
  return (
    <>
      {record ? (
        <>
          <p>
            <Badge tone={toneOfRow(record)}>{said.kinds[record.kind] ?? record.kind}</Badge> {agentOf(record)}
          </p>
          <p className="said">{sentenceOf(record)}</p>
        </>
      ) : (
        <p>{said.detail.removed}</p>
      )}
      <dl className="facts">
        {record ? (
          <>
            <dt>{said.time}</dt>
            <dd>{exactTime(record.at_ms)}</dd>
          </>
        ) : null}
        {record && run ? (
          <>
            <dt>{said.run}</dt>
            <dd>
              <Link href={run}>{record.run}</Link>
            </dd>
            <dt>{said.session}</dt>
            <dd>
              <Link href={`/sessions/${encodeURIComponent(record.session)}`}>{record.session}</Link>
            </dd>
          </>
        ) : null}
        <dt>{said.detail.digest}</dt>
        <dd>
          <code className="audit-digest">{row.digest}</code>
          <CopyButton text={row.digest} label={said.detail.copyDigest} />
        </dd>
        <dt>{said.detail.previous}</dt>
        <dd>
          <code className="audit-digest">{row.previous}</code>
        </dd>
        <dt>{said.detail.signed}</dt>
        <dd>
          {row.is_signed && row.checkpoint !== null
            ? said.detail.isSigned(row.checkpoint)
            : said.detail.notSigned}
        </dd>
      </dl>
      <p className="faint">{said.detail.meaning}</p>
      {record ? (
        <div className="stack">
          <div className="row spread">
            <h3>{said.detail.content}</h3>
            <CopyButton text={content} label={said.detail.copyContent} />
          </div>
          {/* Long contents scroll, also by keyboard. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          <pre className="audit-content" tabIndex={0}>
            {content}
          </pre>
        </div>
      ) : null}
    </>
  );
}
