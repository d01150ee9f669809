// How an agent did over time.

import { useMemo } from "react";
import { Chart, type ChartLine } from "@/look/Chart";
import { count, duration } from "@/look/format";
import { Loading } from "@/look/parts";
import { texts } from "@/texts";
import { type Period, sinceOf, stepOf } from "@/views/spend/period";
import { DAY_MS, HOUR_MS, percent, type Schemas, useFigures } from "./figures";
import { NoFigures } from "./parts";

type Series = Schemas["Series"];

const words = texts.agents.charts;

const LINES: Record<string, { name: string; colour: string; dashed?: boolean; bars?: boolean }> = {
  share: { name: words.share, colour: "--good" },
  p50_ms: { name: words.p50, colour: "--accent" },
  p95_ms: { name: words.p95, colour: "--warn", dashed: true },
  succeeded: { name: words.succeeded, colour: "--good", bars: true },
  failed: { name: words.failed, colour: "--bad", bars: true },
};

/** Return the lines of a series that a chart shows, in its order. */
export function linesOf(series: Series, names: string[]): ChartLine[] {
  return names.flatMap((name) => {
    const found = series.lines.find((line) => line.name === name);
    const look = LINES[name];
    return found && look ? [{ ...look, values: found.values }] : [];
  });
}

export function AgentCharts({ agent, period }: { agent: string; period: Period }) {
  return (
    <div className="charts">
      <Over
        agent={agent}
        period={period}
        what="success"
        title={texts.agents.success}
        names={SHARE}
        show={percent}
        most={1}
      />
      <Over
        agent={agent}
        period={period}
        what="latency"
        title={texts.agents.latency}
        names={TIMES}
        show={duration}
      />
      <Over
        agent={agent}
        period={period}
        what="success"
        title={texts.agents.calls}
        names={CALLS}
        show={count}
      />
    </div>
  );
}

const SHARE = ["share"];
const TIMES = ["p50_ms", "p95_ms"];
const CALLS = ["succeeded", "failed"];

interface OverProps {
  agent: string;
  period: Period;
  what: Series["what"];
  title: string;
  names: string[];
  show: (value: number) => string;
  most?: number;
}

function Over({ agent, period, what, title, names, show, most }: OverProps) {
  const step = stepOf(period);
  const query = { what, step, agent, ...sinceOf(period) };
  const { data, error, refetch } = useFigures<Series>(["series"], "/v1/series", query);
  const lines = useMemo(() => (data ? linesOf(data, names) : []), [data, names]);
  if (data === undefined) {
    return error ? <NoFigures error={error} again={() => void refetch()} /> : <Loading rows={4} />;
  }
  return (
    <Chart
      title={title}
      times={data.at_ms}
      lines={lines}
      show={show}
      stepMs={step === "hour" ? HOUR_MS : DAY_MS}
      {...(most === undefined ? {} : { most })}
    />
  );
}
