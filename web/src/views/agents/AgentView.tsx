// One agent: its card, its load, how it did over time, why it is ranked as it is, and its last errors.

import { Link, useParams, useSearchParams } from "wouter";
import { count, duration, money, shortCount } from "@/look/format";
import { Badge, Loading, Meter, State, Time } from "@/look/parts";
import { ViewHead } from "@/shell/Shell";
import { texts } from "@/texts";
import { PeriodPicker, usePeriod } from "@/views/spend/period";
import { AgentCharts } from "./AgentCharts";
import { AgentCapabilities, Rankings } from "./Capabilities";
import { percent, type Schemas, successTone, useFigures } from "./figures";
import { Breaker, NoFigures, Reading } from "./parts";

type Page = Schemas["AgentPage"];

const words = texts.agents;

export default function AgentView() {
  const { name = "" } = useParams();
  const agent = decodeURIComponent(name);
  const [search, setSearch] = useSearchParams();
  const [period, setPeriod] = usePeriod(search, setSearch, "1");
  const path = `/v1/agents/${encodeURIComponent(agent)}/status`;
  const { data, error, refetch } = useFigures<Page>(["agents", agent], path);
  return (
    <div className="stack">
      <ViewHead title={agent}>
        <Link href="/agents" className="button plain">
          {words.all}
        </Link>
      </ViewHead>
      {data === undefined ? (
        error ? (
          <NoFigures error={error} again={() => void refetch()} />
        ) : (
          <Loading rows={8} />
        )
      ) : (
        <>
          <Reading figures={data} />
          {data.load.description ? <p className="soft said">{data.load.description}</p> : null}
          <div className="agents-two">
            <Load page={data} />
            <Card page={data} />
          </div>
          <section className="stack" aria-label={words.overTime}>
            <PeriodPicker period={period} onChange={setPeriod} />
            <AgentCharts agent={agent} period={period} />
          </section>
          <AgentCapabilities page={data} />
          <Rankings page={data} agent={agent} />
          <Errors page={data} />
        </>
      )}
    </div>
  );
}

function Load({ page }: { page: Page }) {
  const { load } = page;
  const facts: [string, string, string][] = [
    [words.delegations, count(load.delegations), ""],
    [
      words.success,
      load.success === null ? texts.spend.chart.none : percent(load.success),
      successTone(load.success),
    ],
    [words.columns.p50, timeOf(load.p50_ms), ""],
    [words.columns.p95, timeOf(load.p95_ms), ""],
    [words.columns.tokens, shortCount(load.tokens), ""],
    [words.columns.cost, load.cost === null ? texts.spend.chart.none : money(load.cost), ""],
  ];
  return (
    <section className="card" aria-label={words.load}>
      <div className="head">
        <h2>{words.load}</h2>
        <Breaker load={load} />
        {load.openings ? <small>{words.openings(load.openings)}</small> : null}
      </div>
      <div className="body stack">
        <Meter label={words.slots} used={load.running} limit={load.slots} show={count} />
        <Meter label={words.queued} used={load.queued} limit={load.queue} show={count} />
        {load.rate === null ? null : (
          <>
            <Meter
              label={words.rate(duration(load.rate.limit.seconds * 1_000))}
              used={load.rate.calls}
              limit={load.rate.limit.calls}
              show={count}
            />
            {load.rate.wait_ms ? <small>{words.rateWait(duration(load.rate.wait_ms))}</small> : null}
          </>
        )}
        <h3>{words.last24}</h3>
        <dl className="agents-figures">
          {facts.map(([label, value, tone]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd className={`figure ${tone}`}>{value}</dd>
            </div>
          ))}
        </dl>
      </div>
    </section>
  );
}

function Card({ page }: { page: Page }) {
  const { load } = page;
  const names = (agents: string[]) =>
    agents.length === 0
      ? words.facts.nobody
      : agents.map((each) =>
          each === "*" ? (
            <span key={each}>{words.facts.everybody}</span>
          ) : (
            <Link key={each} href={`/agents/${encodeURIComponent(each)}`}>
              {each}
            </Link>
          ),
        );
  return (
    <section className="card" aria-label={words.card}>
      <div className="head">
        <h2>{words.card}</h2>
        {load.is_remote ? <Badge>{words.remote}</Badge> : null}
      </div>
      <dl className="facts body">
        <dt>{words.facts.version}</dt>
        <dd>{page.version}</dd>
        {load.model ? (
          <>
            <dt>{words.facts.model}</dt>
            <dd>
              <code>{load.model}</code>
            </dd>
          </>
        ) : null}
        {load.hosts.length ? (
          <>
            <dt>{words.facts.hosts}</dt>
            <dd>{load.hosts.map((each) => words.host(each.hub, each.free)).join(", ")}</dd>
          </>
        ) : null}
        <dt>{words.facts.mayCall}</dt>
        <dd className="agents-names">{names(page.may_call)}</dd>
        <dt>{words.facts.calledBy}</dt>
        <dd className="agents-names">{names(page.called_by)}</dd>
        <dt>{words.facts.tools}</dt>
        <dd>{page.tools.length ? page.tools.join(", ") : words.facts.noTools}</dd>
        <dt>{words.facts.time}</dt>
        <dd>{page.time_ms === null ? words.facts.teamDefault : duration(page.time_ms)}</dd>
        <dt>{words.facts.tokens}</dt>
        <dd>{page.max_tokens === null ? words.facts.teamDefault : count(page.max_tokens)}</dd>
        {load.is_remote ? null : (
          <>
            <dt>{words.facts.isolation}</dt>
            <dd>{words.isolation[page.isolation]}</dd>
          </>
        )}
      </dl>
    </section>
  );
}

const timeOf = (ms: number | null): string => (ms === null ? texts.spend.chart.none : duration(ms));

function Errors({ page }: { page: Page }) {
  const columns = words.errorColumns;
  if (page.faults.length === 0) {
    return (
      <section className="stack">
        <h2>{words.errors}</h2>
        <p className="soft">{words.noErrors}</p>
      </section>
    );
  }
  return (
    <section className="stack" aria-label={words.errors}>
      <h2>{words.errors}</h2>
      <div className="card table-wrap">
        <table className="table agents-errors">
          <thead>
            <tr>
              <th scope="col">{columns.time}</th>
              <th scope="col">{columns.outcome}</th>
              <th scope="col">{columns.error}</th>
              <th scope="col">{columns.caller}</th>
              <th scope="col">{columns.user}</th>
              <th scope="col">{columns.run}</th>
            </tr>
          </thead>
          <tbody>
            {page.faults.map((each) => (
              <tr key={`${each.delegation} ${each.at_ms}`}>
                <td>
                  <Time at={each.at_ms} />
                </td>
                <td>
                  <State state={each.status} />
                </td>
                <td className="agents-message">
                  <code>{each.code}</code>
                  <span className="said">{each.message}</span>
                </td>
                <td>{each.origin}</td>
                <td>{each.user}</td>
                <td>
                  <Link
                    href={`/runs/${each.run}/d/${encodeURIComponent(each.delegation)}`}
                    aria-label={words.showRun(each.run)}
                  >
                    {words.show}
                  </Link>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
