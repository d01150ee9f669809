// The agents: how busy they are, how they do, and who calls whom.

import { Search } from "lucide-react";
import { useSearchParams } from "wouter";
import { Empty, Loading } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { PeriodPicker, sinceOf, usePeriod } from "@/views/spend/period";
import { AgentTable } from "./AgentTable";
import { CallGraph } from "./CallGraph";
import { found, type Schemas, useFigures } from "./figures";
import { NoFigures, Reading } from "./parts";

export default function AgentsView() {
  const [search, setSearch] = useSearchParams();
  const isGraph = search.get("view") === "graph";
  const text = search.get("q") ?? "";
  const [period, setPeriod] = usePeriod(search, setSearch, "1");
  const query = isGraph ? { ...sinceOf(period) } : {};
  const { data, error, refetch } = useFigures<Schemas["AgentGraph"]>(["agents", "graph"], "/v1/graph", query);

  const choose = (name: string, value: string) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  const tab = (name: string, label: string) => (
    <button
      type="button"
      className="tab"
      aria-current={(name === "graph") === isGraph ? "page" : undefined}
      onClick={() => choose("view", name)}
    >
      {label}
    </button>
  );

  return (
    <div className="stack">
      <ViewHead title={texts.shell.views.agents}>
        {isGraph ? (
          <PeriodPicker period={period} onChange={setPeriod} label={texts.agents.since} />
        ) : (
          <span className="agents-find">
            <Search size={14} aria-hidden />
            <input
              type="search"
              className="input"
              value={text}
              onChange={(event) => choose("q", event.target.value)}
              placeholder={texts.agents.find}
              aria-label={texts.agents.find}
            />
          </span>
        )}
      </ViewHead>
      <nav className="tabs" aria-label={texts.shell.views.agents}>
        {tab("", texts.agents.list)}
        {tab("graph", texts.agents.graph)}
      </nav>
      {data === undefined ? (
        error ? (
          <NoFigures error={error} again={() => void refetch()} />
        ) : (
          <Loading />
        )
      ) : (
        <>
          <Reading figures={data} />
          <Agents data={data} text={text} isGraph={isGraph} />
        </>
      )}
    </div>
  );
}

function Agents({ data, text, isGraph }: { data: Schemas["AgentGraph"]; text: string; isGraph: boolean }) {
  if (data.agents.length === 0) {
    return (
      <Empty title={texts.agents.none.title} command={texts.agents.none.command}>
        <p>{texts.agents.none.advice}</p>
      </Empty>
    );
  }
  if (isGraph) return <CallGraph graph={data} />;
  const shown = found(data.agents, text);
  if (shown.length === 0) return <p className="soft">{texts.agents.noneFound}</p>;
  return <AgentTable agents={shown} currency={data.currency} />;
}
