// What an agent can do, and who is asked first for it.

import { Link } from "wouter";
import { count, duration } from "@/look/format";
import { Badge } from "@/look/parts";
import { texts } from "@/texts";
import { percent, type Schemas } from "./figures";

type Page = Schemas["AgentPage"];

const words = texts.agents;

export function AgentCapabilities({ page }: { page: Page }) {
  return (
    <section className="stack">
      <h2>{words.capabilities}</h2>
      {page.capabilities.length === 0 ? <p className="soft">{words.noCapabilities}</p> : null}
      {page.capabilities.map((each) => (
        <article className="card agents-capability" key={each.code}>
          <div className="head">
            <h3>
              <code>{each.code}</code>
            </h3>
            {each.read_only ? <Badge>{words.readOnly}</Badge> : null}
            {each.cache_ms ? <Badge>{words.cached(duration(each.cache_ms))}</Badge> : null}
            {each.hedge_ms ? <Badge>{words.hedged(duration(each.hedge_ms))}</Badge> : null}
          </div>
          <div className="body stack">
            {each.description ? <p className="said">{each.description}</p> : null}
            <Schema label={words.takes} schema={each.input_schema} />
            <Schema label={words.gives} schema={each.result_schema} />
            {examplesOf(each).length ? (
              <div>
                <span className="label">{words.examples}</span>
                <ul>
                  {examplesOf(each).map((example) => (
                    <li className="said" key={example}>
                      {example}
                    </li>
                  ))}
                </ul>
              </div>
            ) : null}
          </div>
        </article>
      ))}
    </section>
  );
}

/** The examples of a capability; the server leaves out what is empty. */
const examplesOf = (capability: Partial<Schemas["Capability"]>): string[] => capability.examples ?? [];

function Schema({ label, schema }: { label: string; schema: unknown }) {
  if (schema === undefined || schema === null) return null;
  return (
    <details>
      <summary>{label}</summary>
      <pre className="agents-schema">{JSON.stringify(schema, null, 2)}</pre>
    </details>
  );
}

/** The agents that offer each capability, in the order in which they are asked, with the reasons. */
export function Rankings({ page, agent }: { page: Page; agent: string }) {
  if (page.rankings.length === 0) return null;
  const columns = words.rankingColumns;
  return (
    <section className="stack">
      <h2>{words.ranking}</h2>
      {page.rankings.map(({ capability, ranking }) => (
        <div
          className="card table-wrap"
          key={capability}
          role="region"
          aria-label={words.rankingOf(capability)}
          tabIndex={0}
        >
          <table className="table">
            <caption className="agents-caption">{words.rankingOf(capability)}</caption>
            <thead>
              <tr>
                <th scope="col" className="number">
                  {columns.place}
                </th>
                <th scope="col">{columns.agent}</th>
                <th scope="col" className="number">
                  {columns.quality}
                </th>
                <th scope="col" className="number">
                  {columns.latency}
                </th>
                <th scope="col" className="number">
                  {columns.inFlight}
                </th>
                <th scope="col">{columns.why}</th>
              </tr>
            </thead>
            <tbody>
              {ranking.map((each) => (
                <tr key={each.agent} aria-current={each.agent === agent ? "true" : undefined}>
                  <td className="number">{each.place}</td>
                  <td>
                    {each.agent === agent ? (
                      <strong>{each.agent}</strong>
                    ) : (
                      <Link href={`/agents/${encodeURIComponent(each.agent)}`}>{each.agent}</Link>
                    )}
                  </td>
                  <td className="number">
                    {each.ago_ms === null ? texts.spend.chart.none : percent(each.quality)}
                  </td>
                  <td className="number">
                    {each.latency_ms ? duration(each.latency_ms) : texts.spend.chart.none}
                  </td>
                  <td className="number">{count(each.in_flight)}</td>
                  <td className="agents-why">{each.why}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ))}
    </section>
  );
}
