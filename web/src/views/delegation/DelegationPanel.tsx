// One delegation of a run: what was asked, granted, shown, answered and recorded.

import * as Tabs from "@radix-ui/react-tabs";
import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useState } from "react";
import { ApiError, get } from "@/api/client";
import { CopyButton, Empty, Loading, State, Time, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { type Detail, isOpen } from "@/views/delegation/model";
import { Overview } from "@/views/delegation/Overview";
import { Records } from "@/views/delegation/Records";
import { RemitBars } from "@/views/delegation/RemitBars";
import { Seen } from "@/views/delegation/Seen";
import { Verdicts } from "@/views/delegation/Verdicts";
import "./delegation.css";

// While it runs; the run itself is followed live.
const AGAIN_MS = 2_000;

const TABS = { overview: Overview, seen: Seen, verdicts: Verdicts, remit: RemitBars, records: Records };
type TabName = keyof typeof TABS;

export function useDelegation(run: string, path: string) {
  return useQuery({
    queryKey: ["delegation", run, path],
    queryFn: ({ signal }) =>
      get<Detail>(
        `/v1/runs/${encodeURIComponent(run)}/delegations/${encodeURIComponent(path)}`,
        undefined,
        signal,
      ),
    refetchInterval: ({ state }) => (state.data && isOpen(state.data) ? AGAIN_MS : false),
  });
}

export function DelegationPanel({ run, path, onClose }: { run: string; path: string; onClose: () => void }) {
  const { data, error, refetch } = useDelegation(run, path);
  const words = texts.delegation;
  const gone = error instanceof ApiError && error.status === 404;
  return (
    <aside className="card delegation decisions" aria-label={words.label(data?.target ?? path)}>
      <div className="head">
        {data ? (
          <>
            <State state={data.state} />
            <h2 className="one-line">{words.asked(data.origin, data.target)}</h2>
          </>
        ) : (
          <h2 className="one-line">{path}</h2>
        )}
        <button type="button" className="button plain icon" onClick={onClose} aria-label={texts.common.close}>
          <X size={16} aria-hidden />
        </button>
      </div>
      {data ? (
        <DelegationBody key={path} detail={data} />
      ) : (
        <div className="body">
          {gone ? (
            <Empty title={words.gone} />
          ) : error ? (
            <Trouble error={error} again={() => void refetch()} />
          ) : (
            <Loading />
          )}
        </div>
      )}
    </aside>
  );
}

export function DelegationBody({ detail }: { detail: Detail }) {
  const words = texts.delegation;
  const [tab, setTab] = useState<TabName>("overview");
  return (
    <Tabs.Root className="delegation-tabs" value={tab} onValueChange={(value) => setTab(value as TabName)}>
      <div className="about">
        <span>{words.forUser(detail.user)}</span>
        <Time at={detail.asked_ms} />
        <code className="one-line">{detail.path}</code>
        <CopyButton text={detail.path} />
      </div>
      <Tabs.List className="tabs" aria-label={words.label(detail.target)}>
        {(Object.keys(TABS) as TabName[]).map((name) => (
          <Tabs.Trigger key={name} value={name} className="tab">
            {words.tabs[name]}
          </Tabs.Trigger>
        ))}
      </Tabs.List>
      {(Object.entries(TABS) as [TabName, (typeof TABS)[TabName]][]).map(([name, Content]) => (
        <Tabs.Content key={name} value={name} className="body">
          <Content detail={detail} />
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}
