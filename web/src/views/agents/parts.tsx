// Small parts of the pages about agents and spend.

import { ApiError } from "@/api/client";
import { duration, exactTime } from "@/look/format";
import { Empty, State, Tip, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { type AgentLoad, breakerTone } from "./figures";
import "./agents.css";

/** The state of a breaker, and when it lets a call through again. */
export function Breaker({ load }: { load: AgentLoad }) {
  const words = texts.agents.breakerMeans[load.breaker];
  const next = load.probe_ms ? texts.agents.probeIn(duration(load.probe_ms)) : texts.agents.probeNext;
  return (
    <span className="row">
      <Tip text={words}>
        <button type="button" className="agents-breaker">
          <State
            state={load.breaker}
            word={texts.agents.breaker[load.breaker]}
            tone={breakerTone(load.breaker)}
          />
        </button>
      </Tip>
      {load.breaker === "open" ? <small>{next}</small> : null}
    </span>
  );
}

const WIDTH = 4;
const HEIGHT = 18;

/** The last 24 hours as small bars: successes, and failures above them. */
export function Spark({ hours }: { hours: AgentLoad["hours"] }) {
  const most = Math.max(1, ...hours.map(([succeeded, failed]) => succeeded + failed));
  const high = (value: number) => (value ? Math.max(1.5, (value / most) * HEIGHT) : 0);
  return (
    <svg className="agents-spark" width={hours.length * WIDTH} height={HEIGHT} aria-hidden>
      {hours.map(([succeeded, failed], index) => {
        const [good, bad] = [high(succeeded), high(failed)];
        const x = index * WIDTH;
        return (
          <g key={index}>
            <title>{texts.agents.hour(succeeded, failed)}</title>
            <rect className="none" x={x} y={HEIGHT - 1} width={WIDTH - 1} height={1} />
            <rect className="good" x={x} y={HEIGHT - good} width={WIDTH - 1} height={good} />
            <rect className="bad" x={x} y={Math.max(0, HEIGHT - good - bad)} width={WIDTH - 1} height={bad} />
          </g>
        );
      })}
    </svg>
  );
}

/** Say that a server has not read its whole record yet, or does not have all of it any more. */
export function Reading({
  figures,
}: {
  figures: { complete: boolean; through_ms: number; from_ms?: number; since_ms?: number };
}) {
  const { complete, through_ms: through, from_ms: from = 0, since_ms: since = 0 } = figures;
  if (!complete) {
    const words = through ? texts.agents.reading(exactTime(through)) : texts.agents.readingFirst;
    return (
      <p className="banner" role="status">
        {words}
      </p>
    );
  }
  return from > since ? <p className="banner">{texts.agents.wholeSince(exactTime(from))}</p> : null;
}

/** An error of a query; one of permission says what is missing. */
export function NoFigures({ error, again }: { error: unknown; again: () => void }) {
  if (error instanceof ApiError && error.status === 403) {
    return (
      <Empty title={texts.agents.notAllowed.title}>
        <p>{texts.agents.notAllowed.advice}</p>
      </Empty>
    );
  }
  return <Trouble error={error} again={again} />;
}
