// What was granted, what it was carved from, and what was given back.

import { count, counted, duration } from "@/look/format";
import { texts } from "@/texts";
import { type Bar, type Detail, moneyBars, timeBars, tokenBars } from "@/views/delegation/model";
import { Part } from "@/views/delegation/Value";

const words = texts.delegation;

export function RemitBars({ detail }: { detail: Detail }) {
  const { remit } = detail;
  const money = moneyBars(remit);
  const named = (names: string[] | null) => (names === null ? words.noBound : names.join(", ") || words.none);
  const facts: [string, string][] = [
    [words.depth, words.depthOf(remit.depth, remit.max_depth)],
    [words.chain, remit.chain.join(" → ") || words.byUser],
    [words.contextLimit, words.tokensOf(count(remit.context_tokens))],
    [words.remitTools, named(remit.tools)],
    [words.remitTargets, named(remit.targets)],
    [words.mayDelegate, remit.may_delegate ? words.yes : words.no],
    [words.priority, remit.priority.toLowerCase()],
  ];
  return (
    <div className="stack">
      <Part title={words.tokensTitle}>
        <Bars bars={tokenBars(remit)} show={count} />
        {remit.tokens.overrun ? (
          <p className="banner bad">{words.overrun(count(remit.tokens.overrun))}</p>
        ) : null}
      </Part>
      {money.length ? (
        <Part title={words.moneyTitle}>
          <Bars bars={money} show={counted} />
          {remit.cost.unpriced ? <p className="soft">{words.unpriced(count(remit.cost.unpriced))}</p> : null}
        </Part>
      ) : null}
      <Part title={words.timeTitle}>
        <Bars bars={timeBars(remit)} show={duration} />
      </Part>
      <dl className="facts">
        {facts.map(([name, value]) => (
          <div key={name} className="fact">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Bars({ bars, show }: { bars: Bar[]; show: (value: number) => string }) {
  return (
    <dl className="bars">
      {bars.map((bar) => (
        <div key={bar.name} className={bar.name}>
          <dt>{words.bars[bar.name]}</dt>
          <dd>
            <span className="track" aria-hidden>
              <span className="fill" style={{ left: `${bar.start * 100}%`, width: `${bar.share * 100}%` }} />
            </span>
            <span className="number">{show(bar.value)}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}
