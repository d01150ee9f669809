// Tokens or money over time.

import { useMemo, useState } from "react";
import { Chart } from "@/look/Chart";
import { money, shortCount } from "@/look/format";
import { Loading } from "@/look/parts";
import { texts } from "@/texts";
import { DAY_MS, HOUR_MS, type Schemas, useFigures } from "@/views/agents/figures";
import { NoFigures } from "@/views/agents/parts";
import { type Period, sinceOf, stepOf } from "./period";

const words = texts.spend;

const COLOURS: Record<string, { name: string; colour: string; dashed?: boolean; bars?: boolean }> = {
  prompt: { name: words.chart.prompt, colour: "--accent" },
  completion: { name: words.chart.completion, colour: "--ask", dashed: true },
  cost: { name: words.chart.cost, colour: "--accent", bars: true },
};

interface Props {
  period: Period;
  filters: Record<string, string>;
  priced: boolean;
}

export function SpendChart({ period, filters, priced }: Props) {
  const [chosen, setChosen] = useState<"cost" | "tokens" | null>(null);
  const what = chosen ?? (priced ? "cost" : "tokens");
  const step = stepOf(period);
  const query = { what, step, ...sinceOf(period), ...filters };
  const { data, error, refetch } = useFigures<Schemas["Series"]>(["series"], "/v1/series", query);
  const currency = data?.currency ?? "USD";
  const lines = useMemo(
    () =>
      (data?.lines ?? []).flatMap((line) => {
        const look = COLOURS[line.name];
        return look ? [{ ...look, values: line.values }] : [];
      }),
    [data],
  );
  const show = useMemo(
    () => (data?.what === "cost" ? (value: number) => money(value, currency) : shortCount),
    [data?.what, currency],
  );
  if (data === undefined) {
    return error ? <NoFigures error={error} again={() => void refetch()} /> : <Loading rows={4} />;
  }
  return (
    <div className="stack">
      <div className="row" role="group" aria-label={words.chartOf}>
        {(["cost", "tokens"] as const).map((each) => (
          <button
            key={each}
            type="button"
            className={`button ${each === what ? "spend-chosen" : ""}`}
            aria-pressed={each === what}
            onClick={() => setChosen(each)}
          >
            {words[each]}
          </button>
        ))}
      </div>
      <Chart
        title={data.what === "cost" ? words.cost : words.tokens}
        times={data.at_ms}
        lines={lines}
        show={show}
        stepMs={data.step === "hour" ? HOUR_MS : DAY_MS}
        estimate={data.what === "cost"}
      />
    </div>
  );
}
