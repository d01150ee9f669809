// Lines over time, with the same figures as a table for those who do not see lines.

import { useEffect, useRef, useState } from "react";
import type uPlot from "uplot";
import { exactTime } from "@/look/format";
import { texts } from "@/texts";
import "./chart.css";

export interface ChartLine {
  name: string;
  values: (number | null)[];
  /** A colour of `tokens.css`: `--accent`. */
  colour: string;
  dashed?: boolean;
  /** Bars, for what is counted in each step; else a line, which goes on over steps without a value. */
  bars?: boolean;
}

interface Props {
  title: string;
  /** Begin of each step, in milliseconds since 1970. */
  times: number[];
  lines: ChartLine[];
  show: (value: number) => string;
  stepMs: number;
  /** The highest value of the scale, where that is fixed: 1 for a share. */
  most?: number;
  estimate?: boolean;
}

/** A chart; the library that draws it is loaded with the first one. */
export function Chart({ title, times, lines, show, stepMs, most, estimate = false }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const known = lines.some((line) => line.values.some((value) => value !== null));
  const theme = useThemeName();

  useEffect(() => {
    const box = place.current;
    if (box === null || !known) return undefined;
    let plot: uPlot | null = null;
    let gone = false;
    const resize = new ResizeObserver(([entry]) => {
      if (entry && plot) plot.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT });
    });
    void load().then((Plot) => {
      if (gone) return;
      const options = optionsOf(Plot, box, lines, show, stepMs, most, setAt);
      const data = [times.map((each) => each / 1_000), ...lines.map((line) => line.values)];
      plot = new Plot(options, data as uPlot.AlignedData, box);
      resize.observe(box);
    });
    return () => {
      gone = true;
      resize.disconnect();
      plot?.destroy();
    };
  }, [known, lines, most, show, stepMs, theme, times]);

  const shown = at ?? lastKnown(lines);
  return (
    <figure className="chart card">
      <figcaption className="head">
        <h2>{title}</h2>
        {estimate ? <span className="badge bare calm">{texts.common.estimate}</span> : null}
        <span className="chart-legend">
          {lines.map((line) => (
            <span key={line.name}>
              <svg width="14" height="8" aria-hidden>
                <line
                  x1="0"
                  y1="4"
                  x2="14"
                  y2="4"
                  stroke={`var(${line.colour})`}
                  strokeWidth={line.bars ? 8 : 2}
                  {...(line.dashed ? { strokeDasharray: "3 2" } : {})}
                />
              </svg>
              {line.name} <b>{valueAt(line, shown, show)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      {known ? (
        <div className="chart-lines" ref={place} aria-hidden />
      ) : (
        <p className="chart-none soft">{texts.spend.chart.nothing}</p>
      )}
      <div className="chart-foot">
        <small aria-hidden>
          {shown === null || times[shown] === undefined ? "" : exactTime(times[shown])}
        </small>
        <details>
          <summary>{texts.spend.chart.asTable}</summary>
          <Values title={title} times={times} lines={lines} show={show} />
        </details>
      </div>
    </figure>
  );
}

function Values({ title, times, lines, show }: Pick<Props, "title" | "times" | "lines" | "show">) {
  const rows = times
    .map((time, index) => ({ time, index }))
    .filter(({ index }) => lines.some((line) => (line.values[index] ?? 0) !== 0))
    .reverse();
  return (
    <div className="table-wrap chart-table" role="region" aria-label={title} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            <th scope="col">{texts.spend.chart.time}</th>
            {lines.map((line) => (
              <th scope="col" className="number" key={line.name}>
                {line.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ time, index }) => (
            <tr key={time}>
              <td>{exactTime(time)}</td>
              {lines.map((line) => (
                <td className="number" key={line.name}>
                  {valueAt(line, index, show)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const HEIGHT = 150;

const DAY_MS = 86_400_000;
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** A time below a chart: the day where a new one begins, else the hour. */
function axisTime(atMs: number, stepMs: number): string {
  const isMidnight = new Date(atMs).getHours() === 0;
  return stepMs >= DAY_MS || isMidnight ? day.format(atMs) : hour.format(atMs);
}

const valueAt = (line: ChartLine, index: number | null, show: (value: number) => string): string => {
  const value = index === null ? null : (line.values[index] ?? null);
  return value === null ? texts.spend.chart.none : show(value);
};

/** The last step at which any line has a value. */
function lastKnown(lines: ChartLine[]): number | null {
  const steps = lines[0]?.values.length ?? 0;
  for (let step = steps - 1; step >= 0; step -= 1) {
    if (lines.some((line) => (line.values[step] ?? null) !== null)) return step;
  }
  return null;
}

async function load(): Promise<typeof uPlot> {
  const [made] = await Promise.all([import("uplot"), import("uplot/dist/uPlot.min.css")]);
  return made.default;
}

function optionsOf(
  Plot: typeof uPlot,
  box: HTMLElement,
  lines: ChartLine[],
  show: (value: number) => string,
  stepMs: number,
  most: number | undefined,
  point: (index: number | null) => void,
): uPlot.Options {
  const colours = getComputedStyle(box);
  const colour = (name: string) => colours.getPropertyValue(name).trim();
  const font = `11px ${colour("--font")}`;
  // The first and the last bar need half a step more.
  const margin = lines.some((line) => line.bars) ? stepMs / 2_000 : 0;
  // Of what is counted there are no halves.
  const isCount =
    lines.every((line) => line.values.every((each) => Number.isInteger(each ?? 0))) && most === undefined;
  const axis = { font, stroke: colour("--ink-faint"), grid: { stroke: colour("--edge"), width: 1 } };
  return {
    width: Math.max(160, Math.floor(box.clientWidth)),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: {
      x: { range: (_, low, high) => [low - margin, high + margin] },
      y: { range: (_, __, high) => [0, most ?? Math.max(high * 1.08, 1e-9)] },
    },
    axes: [
      {
        ...axis,
        ticks: { show: false },
        size: 26,
        values: (_, steps) => steps.map((each) => axisTime(each * 1_000, stepMs)),
        space: 70,
      },
      {
        ...axis,
        ticks: { show: false },
        values: (_, steps) => steps.map((each) => (each % 1 && isCount ? "" : show(each))),
        size: 62,
        space: 34,
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.colour),
        width: line.bars ? 0 : 1.75,
        spanGaps: true,
        points: { show: !line.bars && line.values.filter((each) => each !== null).length < 3, size: 6 },
        ...(line.dashed ? { dash: [4, 3] } : {}),
        ...(line.bars ? { fill: colour(line.colour), paths: barsOf(Plot) } : {}),
      })),
    ],
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? null)] },
  };
}

const barsOf = (Plot: typeof uPlot): uPlot.Series.PathBuilder => {
  const make = Plot.paths.bars?.({ size: [0.7, 40, 1], radius: 0.1 });
  if (make === undefined) throw new Error("uPlot has no bars");
  return make;
};

/** The name of the theme in use: a chart is drawn anew with its colours. */
function useThemeName(): string {
  const root = document.documentElement;
  const [name, setName] = useState(root.dataset["theme"] ?? "");
  useEffect(() => {
    const seen = new MutationObserver(() => setName(root.dataset["theme"] ?? ""));
    seen.observe(root, { attributeFilter: ["data-theme"] });
    return () => seen.disconnect();
  }, [root]);
  return name;
}
