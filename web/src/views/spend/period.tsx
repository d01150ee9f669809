// The period that figures are about: chosen from a list, or from one day to another, and kept in the address.

import { useId } from "react";
import { texts } from "@/texts";
import { DAY_MS, HOUR_MS } from "@/views/agents/figures";
import "./period.css";

export interface Period {
  /** A number of days up to now; empty: from a day to another. */
  days: string;
  from: string;
  to: string;
}

type SetSearch = (
  change: (before: URLSearchParams) => URLSearchParams,
  options?: { replace?: boolean },
) => void;

/** The period in the address. */
export function usePeriod(
  search: URLSearchParams,
  setSearch: SetSearch,
  usual: string,
): [Period, (period: Period) => void] {
  const period = periodIn(search, usual);
  const choose = (chosen: Period) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        for (const name of ["days", "from", "to"] as const) {
          if (chosen[name] && !(name === "days" && chosen.days === usual)) next.set(name, chosen[name]);
          else next.delete(name);
        }
        return next;
      },
      { replace: true },
    );
  return [period, choose];
}

const DATE = /^\d{4}-\d{2}-\d{2}$/;

/** Read a period from an address; what is wrong there is left out. */
export function periodIn(search: URLSearchParams, usual: string): Period {
  const [from, to] = [search.get("from") ?? "", search.get("to") ?? ""];
  if (DATE.test(from) || DATE.test(to)) {
    return { days: "", from: DATE.test(from) ? from : "", to: DATE.test(to) ? to : "" };
  }
  const days = search.get("days") ?? usual;
  return { days: days in texts.spend.periods ? days : usual, from: "", to: "" };
}

/** The begin and the end of a period for a query, at whole hours, so that equal queries are one. */
export function sinceOf(period: Period, now = Date.now()): { since_ms?: number; until_ms?: number } {
  if (period.days) {
    const since = now - Number(period.days) * DAY_MS;
    return { since_ms: since - (since % HOUR_MS) };
  }
  return {
    ...(period.from ? { since_ms: Date.parse(`${period.from}T00:00:00Z`) } : { since_ms: 0 }),
    ...(period.to ? { until_ms: Date.parse(`${period.to}T00:00:00Z`) + DAY_MS } : {}),
  };
}

/** Hours for a few days, days for more: what a chart of the period can show. */
export function stepOf(period: Period): "hour" | "day" {
  return period.days && Number(period.days) <= 7 ? "hour" : "day";
}

const CUSTOM = "custom";

export function PeriodPicker({
  period,
  onChange,
  label = texts.spend.period,
}: {
  period: Period;
  onChange: (period: Period) => void;
  label?: string;
}) {
  const id = useId();
  const today = new Date().toISOString().slice(0, 10);
  const choose = (days: string) =>
    onChange(days === CUSTOM ? { days: "", from: today, to: today } : { days, from: "", to: "" });
  const day = (name: "from" | "to") => (
    <input
      type="date"
      className="input spend-date"
      aria-label={texts.spend[name]}
      value={period[name]}
      max={today}
      onChange={(event) => onChange({ ...period, [name]: event.target.value })}
    />
  );
  return (
    <span className="row spend-period">
      <label className="label" htmlFor={id}>
        {label}
      </label>
      <select
        id={id}
        className="input"
        value={period.days || CUSTOM}
        onChange={(event) => choose(event.target.value)}
      >
        {Object.entries(texts.spend.periods).map(([days, name]) => (
          <option key={days} value={days}>
            {name}
          </option>
        ))}
        <option value={CUSTOM}>{texts.spend.custom}</option>
      </select>
      {period.days ? null : (
        <>
          {day("from")}
          {day("to")}
        </>
      )}
    </span>
  );
}
