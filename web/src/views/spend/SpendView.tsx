// What was spent, by whom and for what, and what is left of the budgets.

import { Download, X } from "lucide-react";
import { useSearchParams } from "wouter";
import { count, money, shortCount } from "@/look/format";
import { Empty, Loading } from "@/look/parts";
import { save } from "@/look/save";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { percent, type Schemas, type SpendRow, useFigures } from "@/views/agents/figures";
import { NoFigures, Reading } from "@/views/agents/parts";
import { Budgets } from "./Budgets";
import { PeriodPicker, sinceOf, usePeriod } from "./period";
import { SpendChart } from "./SpendChart";
import { SpendTable } from "./SpendTable";
import { BY, csvOf, sorted, sortIn, sortName } from "./table";
import "./spend.css";

const FILTERS = ["user", "agent", "capability", "model"] as const;
// The server gives no more rows at once, and nobody reads more.
const MOST_ROWS = 1_000;

const words = texts.spend;

export default function SpendView() {
  const [search, setSearch] = useSearchParams();
  const by = BY.find((each) => each === search.get("by")) ?? "agent";
  const [period, setPeriod] = usePeriod(search, setSearch, "30");
  const sort = sortIn(search.get("sort"), by);
  const filters = Object.fromEntries(FILTERS.map((name) => [name, search.get(name) ?? ""]));
  const query = { by, limit: MOST_ROWS, ...sinceOf(period), ...filters };
  const { data, error, refetch } = useFigures<Schemas["SpendTable"]>(["spend"], "/v1/spend", query);

  const change = (changes: Record<string, string>) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          if (value) next.set(name, value);
          else next.delete(name);
        }
        return next;
      },
      { replace: true },
    );
  /** Show only what a row is about, by the next thing that one asks then. */
  const narrow = (key: string) => {
    if (by !== "day") change({ [by]: key, by: by === "agent" ? "user" : "agent", sort: "" });
  };
  const rows = data ? sorted(data.rows, sort) : [];
  return (
    <div className="stack">
      <ViewHead title={texts.shell.views.spend}>
        <PeriodPicker period={period} onChange={setPeriod} />
        <button
          type="button"
          className="button"
          disabled={!rows.length}
          onClick={() =>
            data &&
            save(`spend-by-${by}.csv`, new Blob([csvOf(rows, by, data.currency)], { type: "text/csv" }))
          }
        >
          <Download size={14} aria-hidden />
          {words.export}
        </button>
      </ViewHead>
      <Filters filters={filters} remove={(name) => change({ [name]: "" })} />
      {data === undefined ? (
        error ? (
          <NoFigures error={error} again={() => void refetch()} />
        ) : (
          <Loading />
        )
      ) : (
        <>
          <Reading figures={data} />
          <Totals totals={data.totals} currency={data.currency} />
          <SpendChart period={period} filters={filters} priced={data.totals.cost !== null} />
          <nav className="tabs" aria-label={words.byLabel}>
            {BY.map((each) => (
              <button
                key={each}
                type="button"
                className="tab"
                aria-current={each === by ? "page" : undefined}
                onClick={() => change({ by: each === "agent" ? "" : each, sort: "" })}
              >
                {words.by[each]}
              </button>
            ))}
          </nav>
          {rows.length === 0 ? (
            <Empty title={words.none.title} command={words.none.command}>
              <p>{words.none.advice}</p>
            </Empty>
          ) : (
            <SpendTable
              rows={rows}
              totals={data.totals}
              by={by}
              currency={data.currency}
              sort={sort}
              onSort={(next) => change({ sort: sortName(next) })}
              onOnly={narrow}
            />
          )}
        </>
      )}
      <Budgets />
    </div>
  );
}

function Filters({ filters, remove }: { filters: Record<string, string>; remove: (name: string) => void }) {
  const set = FILTERS.filter((name) => filters[name]);
  if (set.length === 0) return null;
  return (
    <div className="row">
      {set.map((name) => {
        const [what, value] = [words.by[name], filters[name] ?? ""];
        return (
          <button
            key={name}
            type="button"
            className="button spend-filter"
            aria-label={words.removeFilter(what, value)}
            onClick={() => remove(name)}
          >
            {words.only(what, value)}
            <X size={13} aria-hidden />
          </button>
        );
      })}
    </div>
  );
}

function Totals({ totals, currency }: { totals: SpendRow; currency: string }) {
  const { cost, unpriced_tokens: unpriced } = totals;
  const worked = totals.succeeded + totals.failed;
  const costNote = cost === null ? words.noPrice : unpriced ? words.unpriced(shortCount(unpriced)) : "";
  const tiles: [string, string, string][] = [
    [words.cost, cost === null ? texts.common.unknown : money(cost, currency), costNote],
    [
      words.tokens,
      shortCount(totals.tokens),
      totals.overrun
        ? words.overrun(shortCount(totals.overrun))
        : words.readWritten(shortCount(totals.prompt), shortCount(totals.completion)),
    ],
    [words.runs, count(totals.runs), ""],
    [words.delegations, count(totals.delegations), ""],
    [
      words.failures,
      count(totals.failed),
      worked ? words.ofDelegations(percent(totals.failed / worked)) : "",
    ],
    [words.refusals, count(totals.refused), ""],
  ];
  return (
    <div className="stack">
      <dl className="spend-tiles">
        {tiles.map(([label, value, note]) => (
          <div className="card" key={label}>
            <dt>
              {label}
              {label === words.cost ? <span className="badge bare calm">{texts.common.estimate}</span> : null}
            </dt>
            <dd>{value}</dd>
            <dd className="note">{note}</dd>
          </div>
        ))}
      </dl>
      {totals.tokens && (cost === null || unpriced) ? <small>{words.priceHint}</small> : null}
    </div>
  );
}
