// The record, newest row first, and whether it is intact.

import { Download } from "lucide-react";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { download, withQuery } from "@/api/client";
import { useMay } from "@/api/console";
import { useAnnounce } from "@/look/announce";
import { Empty } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { type Since, sinceMs } from "@/views/sessions/since";
import { TextFilter } from "@/views/sessions/SessionsView";
import { AuditRows } from "./AuditRows";
import { RowDetail } from "./RowDetail";
import { VerificationBanner } from "./Verification";
import "./audit.css";

const said = texts.audit;
const FILTERS = ["run", "session", "user", "agent", "kind"] as const;

export default function AuditView() {
  const { fail } = useAnnounce();
  const may = useMay("read");
  const [search, setSearch] = useSearchParams();
  const [opened] = useState(() => Date.now());
  const set = (name: string, value: string) =>
    setSearch(
      (all) => {
        const next = new URLSearchParams(all);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  if (!may) {
    return (
      <>
        <ViewHead title={texts.shell.views.audit} />
        <Empty title={said.noPermission} command={said.noPermissionCommand}>
          <p>{said.noPermissionHint}</p>
        </Empty>
      </>
    );
  }
  const since = search.get("since") ?? "";
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, search.get(name) ?? ""]));
  const filter = { ...wanted, since: sinceMs(since, opened) };
  const filtered = Boolean(since) || FILTERS.some((name) => wanted[name]);
  const row = Number(search.get("row")) || null;
  const choose = (seq: number | null) => set("row", seq === null ? "" : String(seq));
  return (
    <>
      <ViewHead title={texts.shell.views.audit}>
        <button
          type="button"
          className="button"
          onClick={() =>
            void download(withQuery("/v1/audit/export", filter), "remit-audit.jsonl").catch(fail)
          }
        >
          <Download size={14} aria-hidden />
          {said.export}
        </button>
      </ViewHead>
      <VerificationBanner onRow={choose} />
      <search className="filters" aria-label={said.filters}>
        <label className="filter">
          <span className="label">{said.kind}</span>
          <select className="input" value={wanted.kind} onChange={(event) => set("kind", event.target.value)}>
            <option value="">{said.anyKind}</option>
            {Object.entries(said.kinds).map(([kind, name]) => (
              <option key={kind} value={kind}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {(["user", "agent", "run", "session"] as const).map((name) => (
          <TextFilter
            key={`${name} ${wanted[name]}`}
            label={said[name]}
            value={wanted[name] ?? ""}
            set={(value) => set(name, value)}
          />
        ))}
        <label className="filter">
          <span className="label">{said.since}</span>
          <select className="input" value={since} onChange={(event) => set("since", event.target.value)}>
            <option value="">{said.ever}</option>
            {(Object.keys(said.sinceChoices) as Since[]).map((word) => (
              <option key={word} value={word}>
                {said.sinceChoices[word]}
              </option>
            ))}
          </select>
        </label>
        {filtered ? (
          <button type="button" className="button plain" onClick={() => setSearch({}, { replace: true })}>
            {said.clear}
          </button>
        ) : null}
      </search>
      <div className={row === null ? "audit" : "audit with-detail"}>
        <AuditRows filter={filter} filtered={filtered} chosen={row} choose={choose} />
        {row === null ? null : <RowDetail key={row} seq={row} close={() => choose(null)} />}
      </div>
    </>
  );
}
