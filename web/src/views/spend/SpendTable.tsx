// The rows of spend, with a total below them.

import { ArrowDown, ArrowUp } from "lucide-react";
import { count, duration, money, shortCount } from "@/look/format";
import { texts } from "@/texts";
import type { SpendRow } from "@/views/agents/figures";
import { type By, COLUMNS, type Column, type Sort, turned } from "./table";

const words = texts.spend;

interface Props {
  rows: SpendRow[];
  totals: SpendRow;
  by: By;
  currency: string;
  sort: Sort;
  onSort: (sort: Sort) => void;
  onOnly: (key: string) => void;
}

const NARROW: Column[] = ["tokens", "cost", "failed"];

export function SpendTable({ rows, totals, by, currency, sort, onSort, onOnly }: Props) {
  const head = (column: Column, label: string) => {
    const here = sort.column === column;
    const Arrow = sort.down ? ArrowDown : ArrowUp;
    return (
      <th
        key={column}
        scope="col"
        className={classOf(column)}
        aria-sort={here ? (sort.down ? "descending" : "ascending") : undefined}
      >
        <button
          type="button"
          className="spend-sort"
          aria-label={words.sortBy(label)}
          onClick={() => onSort(turned(sort, column))}
        >
          {label}
          {column === "cost" ? <small> {texts.common.estimate}</small> : null}
          {here ? <Arrow size={12} aria-hidden /> : null}
        </button>
      </th>
    );
  };
  return (
    <div className="card table-wrap">
      <table className="table spend-table">
        <thead>
          <tr>
            {head("key", words.by[by])}
            {COLUMNS.map((column) => head(column, words.columns[column]))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <th scope="row">
                {by === "day" || !row.key ? (
                  row.key || words.unnamed[by]
                ) : (
                  <button
                    type="button"
                    className="spend-key"
                    aria-label={words.showOnly(row.key)}
                    onClick={() => onOnly(row.key)}
                  >
                    {row.key}
                  </button>
                )}
              </th>
              <Figures row={row} currency={currency} />
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{words.total}</th>
            <Figures row={totals} currency={currency} />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

const classOf = (column: Column): string =>
  column === "key" ? "" : NARROW.includes(column) ? "number" : "number wide";

function Figures({ row, currency }: { row: SpendRow; currency: string }) {
  return COLUMNS.map((column) => {
    const value = row[column];
    return (
      <td
        key={column}
        className={`${classOf(column)} ${column === "failed" && value ? "figure bad" : ""}`}
        title={value !== null && column !== "cost" && column !== "p95_ms" ? count(value) : undefined}
      >
        {shown(column, value, currency)}
      </td>
    );
  });
}

function shown(column: Column, value: number | null, currency: string): string {
  if (value === null) return words.chart.none;
  if (column === "cost") return money(value, currency);
  return column === "p95_ms" ? duration(value) : shortCount(value);
}
