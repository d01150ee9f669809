// The limits in force, and what is used of them now.

import { Link } from "wouter";
import { bytes, count, counted, duration, shortCount } from "@/look/format";
import { Command, Loading, Meter } from "@/look/parts";
import { texts } from "@/texts";
import { type Schemas, useFigures } from "@/views/agents/figures";
import { NoFigures } from "@/views/agents/parts";

type Budget = Schemas["BudgetState"];

const words = texts.spend;

export function Budgets() {
  const { data, error, refetch } = useFigures<Budget>(["budgets"], "/v1/budgets");
  return (
    <section className="stack" aria-label={words.budgets}>
      <h2>{words.budgets}</h2>
      {data === undefined ? (
        error ? (
          <NoFigures error={error} again={() => void refetch()} />
        ) : (
          <Loading rows={4} />
        )
      ) : (
        <div className="spend-budgets">
          <Users data={data} />
          <LiveRuns data={data} />
          <Rates data={data} />
          <Limits data={data} />
        </div>
      )}
    </section>
  );
}

function Users({ data }: { data: Budget }) {
  const limited = data.users.some((each) => each.limit !== null || each.cost_limit !== null);
  return (
    <div className="card">
      <div className="head">
        <h3>{words.usersToday}</h3>
      </div>
      <div className="body stack spend-list" role="region" aria-label={words.usersToday} tabIndex={0}>
        {data.users.length === 0 ? <p className="soft">{words.noUsers}</p> : null}
        {data.users.map((each) => (
          <div key={each.user} className="stack spend-run">
            <Meter
              label={words.userDay(each.user, each.reserved ? shortCount(each.reserved) : "")}
              used={each.spent + each.reserved}
              limit={each.limit}
              show={shortCount}
            />
            {each.cost_limit !== null || each.cost_spent + each.cost_reserved > 0 ? (
              <Meter
                label={words.userMoney(each.user, each.cost_reserved ? counted(each.cost_reserved) : "")}
                used={each.cost_spent + each.cost_reserved}
                limit={each.cost_limit}
                show={counted}
              />
            ) : null}
          </div>
        ))}
        {data.users.length && !limited ? (
          <small>
            {words.noDayLimit} <Command text={words.dayLimitKey} />
          </small>
        ) : null}
      </div>
    </div>
  );
}

function LiveRuns({ data }: { data: Budget }) {
  return (
    <div className="card">
      <div className="head">
        <h3>{words.liveRuns}</h3>
      </div>
      <div className="body stack spend-list">
        {data.runs.length === 0 ? <p className="soft">{words.noLiveRuns}</p> : null}
        {data.runs.map((each) => (
          <div key={each.run} className="stack spend-run">
            <span className="row spread">
              <Link href={`/runs/${each.run}`}>{words.liveRun(each.agent, each.user)}</Link>
              <small>{words.timeLeft(duration(each.time_left_ms))}</small>
            </span>
            <Meter
              label={words.tokens}
              used={each.granted - each.left}
              limit={each.granted}
              show={shortCount}
            />
            {each.cost !== null || each.cost_used > 0 ? (
              <Meter
                label={words.money}
                used={each.cost === null ? each.cost_used : each.cost - (each.cost_left ?? 0)}
                limit={each.cost}
                show={counted}
              />
            ) : null}
          </div>
        ))}
      </div>
    </div>
  );
}

function Rates({ data }: { data: Budget }) {
  if (data.rates.length === 0) return null;
  return (
    <div className="card">
      <div className="head">
        <h3>{words.rates}</h3>
      </div>
      <div className="body stack spend-list" role="region" aria-label={words.rates} tabIndex={0}>
        {data.rates.map(({ agent, rate }) => (
          <Meter
            key={agent}
            label={`${agent}, ${texts.agents.rate(duration(rate.limit.seconds * 1_000))}`}
            used={rate.calls}
            limit={rate.limit.calls}
            show={count}
          />
        ))}
      </div>
    </div>
  );
}

function Limits({ data }: { data: Budget }) {
  return (
    <div className="card">
      <div className="head">
        <h3>{words.limits}</h3>
      </div>
      <dl className="facts body spend-limits">
        {data.limits.map((each) => (
          <div key={each.name}>
            <dt title={each.name}>{words.limitNames[each.name] ?? each.name}</dt>
            <dd>{valueOf(each)}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function valueOf({ value, unit }: Budget["limits"][number]): string {
  if (unit === "ms") return duration(value);
  if (unit === "millionths") return counted(value);
  return unit === "bytes" ? bytes(value) : count(value);
}
