// Whether the record is intact, in words, and what to do if it is not.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleCheck, RefreshCw, ShieldAlert, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { act, get } from "@/api/client";
import type { components } from "@/api/operator";
import { useAnnounce } from "@/look/announce";
import { count, duration } from "@/look/format";
import { Command, CopyButton, explain, Skeleton, Time } from "@/look/parts";
import { texts } from "@/texts";
import { type Finding, meaningOf, placeOf, rowOf } from "./findings";

type Verification = components["schemas"]["AuditVerification"];
type Result = components["schemas"]["VerifiedRecord"];

const said = texts.audit.verification;
const ADDRESS = "/v1/audit/verification";
const KEY = ["audit", "verification"];
// More places than this say nothing more.
const MOST_SHOWN = 20;
const WHILE_RUNNING_MS = 500;
const OTHERWISE_MS = 15_000;

export function VerificationBanner({ onRow }: { onRow: (seq: number) => void }) {
  const queries = useQueryClient();
  const { fail } = useAnnounce();
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) => get<Verification>(ADDRESS, {}, signal),
    refetchInterval: (state) => (state.state.data?.state === "running" ? WHILE_RUNNING_MS : OTHERWISE_MS),
  });
  const again = useMutation({
    mutationFn: () => act<Verification>("POST", ADDRESS),
    onSuccess: (told) => queries.setQueryData(KEY, told),
    onError: fail,
  });
  const told = query.data;
  if (query.isPending) return <Skeleton height="4.5rem" />;
  if (!told) {
    const { title, advice } = explain(query.error);
    return (
      <Box tone="warn" icon={<TriangleAlert size={18} aria-hidden />} title={title}>
        <p>{advice}</p>
      </Box>
    );
  }
  const running = told.state === "running";
  const button = (
    <button
      type="button"
      className="button"
      title={said.againHint}
      disabled={running || again.isPending}
      onClick={() => again.mutate()}
    >
      <RefreshCw size={14} aria-hidden />
      {said.again}
    </button>
  );
  return (
    <section className="verification" aria-label={said.title}>
      <div aria-live="polite">
        <Verdict told={told} onRow={onRow} button={button} />
      </div>
      {running && told.progress ? <Progress row={told.progress.row} of={told.progress.of} /> : null}
    </section>
  );
}

function Progress({ row, of }: { row: number; of: number }) {
  const width = { width: `${of ? (row / of) * 100 : 0}%` };
  const text = said.progress(count(row), count(of));
  return (
    <div className="verification-progress meter">
      <div className="figures">
        <span>{said.running}</span>
        <span>{text}</span>
      </div>
      <div
        className="track"
        role="progressbar"
        aria-label={said.running}
        aria-valuemin={0}
        aria-valuemax={of}
        aria-valuenow={row}
        aria-valuetext={text}
      >
        <div className="fill" style={width} />
      </div>
    </div>
  );
}

function Verdict({
  told,
  onRow,
  button,
}: {
  told: Verification;
  onRow: (seq: number) => void;
  button: ReactNode;
}) {
  const { result } = told;
  if (told.state === "failed") {
    return (
      <Box tone="warn" icon={<TriangleAlert size={18} aria-hidden />} title={said.failed} button={button}>
        <p>{told.failure}</p>
      </Box>
    );
  }
  if (!result) return <Box tone="" icon={null} title={said.running} button={button} />;
  const foot = <Foot result={result} wholeMs={told.whole_ms} />;
  if (result.ok) {
    const text = result.rows ? said.intactText(result.rows, result.checkpoints) : said.empty;
    return (
      <Box tone="good" icon={<CircleCheck size={18} aria-hidden />} title={said.intact} button={button}>
        <p>{text}</p>
        <Remarks result={result} />
        {foot}
      </Box>
    );
  }
  const title = result.announced ? said.announced : said.changed(result.findings.length);
  return (
    <Box
      tone={result.announced ? "warn" : "bad"}
      icon={<ShieldAlert size={18} aria-hidden />}
      title={title}
      button={button}
    >
      <p>{result.announced ? said.announcedText : said.changedText}</p>
      <Findings findings={result.findings} onRow={onRow} />
      <h3>{said.todo}</h3>
      <ol className="verification-todo">
        {said.steps.map((step, place) => (
          <li key={step}>
            {step} {place === 1 ? <Command text={said.anchorCommand} /> : null}
          </li>
        ))}
      </ol>
      <Remarks result={result} />
      {foot}
    </Box>
  );
}

function Box({
  tone,
  icon,
  title,
  button,
  children,
}: {
  tone: "good" | "warn" | "bad" | "";
  icon: ReactNode;
  title: string;
  button?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <div className={`verification-box ${tone}`}>
      <div className="verification-head">
        {icon}
        <h2>{title}</h2>
        {button}
      </div>
      {children}
    </div>
  );
}

function Findings({ findings, onRow }: { findings: Finding[]; onRow: (seq: number) => void }) {
  return (
    <ul className="verification-findings">
      {findings.slice(0, MOST_SHOWN).map((finding) => {
        const row = rowOf(finding);
        return (
          <li key={`${finding.tampering} ${finding.first} ${finding.message}`}>
            {row === null ? (
              <strong>{placeOf(finding)}</strong>
            ) : (
              <button type="button" className="verification-place" onClick={() => onRow(row)}>
                {placeOf(finding)}
              </button>
            )}
            <span>{meaningOf(finding)}</span>
            <small>{finding.message}</small>
          </li>
        );
      })}
      {findings.length > MOST_SHOWN ? <li>{said.more(findings.length - MOST_SHOWN)}</li> : null}
    </ul>
  );
}

function Remarks({ result }: { result: Result }) {
  const remarks = [
    result.unprotected ? said.unprotected(result.unprotected) : "",
    result.removed ? said.removed(result.removed) : "",
    result.unchained ? said.unchained(result.unchained) : "",
    result.since ? said.since(result.since) : "",
  ].filter(Boolean);
  return remarks.length ? <p className="soft">{remarks.join(" ")}</p> : null;
}

function Foot({ result, wholeMs }: { result: Result; wholeMs: number | null }) {
  return (
    <dl className="verification-foot">
      <div>
        <dt>{said.last}</dt>
        <dd>
          <Time at={result.at_ms} />
          <span>{said.took(duration(result.took_ms))}</span>
        </dd>
      </div>
      {result.since ? (
        <div>
          <dt>{said.whole}</dt>
          <dd>{wholeMs === null ? said.never : <Time at={wholeMs} />}</dd>
        </div>
      ) : null}
      <div>
        <dt title={said.keysHint}>{said.keys}</dt>
        <dd>
          {result.keys.length === 0 ? said.noKeys : null}
          {result.keys.map((key) => (
            <span key={key} className="verification-key">
              <code title={key}>{key}</code>
              <CopyButton text={key} label={said.copyKey} />
            </span>
          ))}
        </dd>
      </div>
    </dl>
  );
}
