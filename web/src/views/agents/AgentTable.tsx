// The agents in a table: load, queue, breaker, and how the last 24 hours went.

import { Link } from "wouter";
import { count, duration, money, shortCount } from "@/look/format";
import { Badge } from "@/look/parts";
import { texts } from "@/texts";
import { type AgentLoad, percent, successTone } from "./figures";
import { Breaker, Spark } from "./parts";

const columns = texts.agents.columns;

export function AgentTable({ agents, currency }: { agents: AgentLoad[]; currency: string }) {
  const priced = agents.some((each) => each.cost !== null);
  return (
    <div className="card table-wrap">
      <table className="table agents-table">
        <thead>
          <tr>
            <th scope="col">{columns.agent}</th>
            <th scope="col">{columns.breaker}</th>
            <th scope="col" className="number">
              {columns.running}
            </th>
            <th scope="col" className="number mid">
              {columns.queue}
            </th>
            <th scope="col">{columns.success}</th>
            <th scope="col" className="number wide">
              {columns.p50}
            </th>
            <th scope="col" className="number wide">
              {columns.p95}
            </th>
            <th scope="col" className="number wide">
              {columns.tokens}
            </th>
            {priced ? (
              <th scope="col" className="number wide">
                {columns.cost} <small>{texts.common.estimate}</small>
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {agents.map((each) => (
            <tr key={each.name}>
              <th scope="row" className="agents-name">
                <span className="row">
                  <Link href={`/agents/${encodeURIComponent(each.name)}`}>{each.name}</Link>
                  {each.is_remote ? <Badge>{texts.agents.remote}</Badge> : null}
                </span>
                <small className="one-line">{each.description}</small>
              </th>
              <td>
                <Breaker load={each} />
              </td>
              <td className="number" title={texts.agents.ofSlots(count(each.running), count(each.slots))}>
                {count(each.running)}
                {each.queued ? <small className="narrow">{texts.agents.waiting(each.queued)}</small> : null}
              </td>
              <td className="number mid">{count(each.queued)}</td>
              <td>
                <span className="agents-success">
                  <Spark hours={each.hours} />
                  <span className={`figure ${successTone(each.success)}`}>
                    {each.success === null ? texts.spend.chart.none : percent(each.success)}
                  </span>
                </span>
              </td>
              <td className="number wide">{timeOf(each.p50_ms)}</td>
              <td className="number wide">{timeOf(each.p95_ms)}</td>
              <td className="number wide" title={count(each.tokens)}>
                {shortCount(each.tokens)}
              </td>
              {priced ? (
                <td className="number wide">
                  {each.cost === null ? texts.spend.chart.none : money(each.cost, currency)}
                </td>
              ) : null}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const timeOf = (ms: number | null): string => (ms === null ? texts.spend.chart.none : duration(ms));
