// Who may call whom, and who did: as a picture, and as a table that says the same.

import { useMemo, useState } from "react";
import { Link } from "wouter";
import { count, duration, shortCount } from "@/look/format";
import { Switch } from "@/look/parts";
import { texts } from "@/texts";
import type { CallEdge, Schemas } from "./figures";
import { type GraphLine, type GraphNode, layout, NODE, USER } from "./graph";

// More lines than this hide what happened.
const MOST_MAY = 60;

const words = texts.agents.edges;

export function CallGraph({ graph }: { graph: Schemas["AgentGraph"] }) {
  const { agents, edges } = graph;
  const unused = edges.filter((each) => each.calls === 0 && each.origin !== USER).length;
  const [showMay, setShowMay] = useState(unused <= MOST_MAY);
  const [near, setNear] = useState<string | null>(null);
  const drawn = useMemo(
    () =>
      layout(
        agents.map((each) => each.name),
        edges,
        showMay,
      ),
    [agents, edges, showMay],
  );
  const known = new Set(agents.map((each) => each.name));
  return (
    <>
      <div className="row spread">
        <Switch checked={showMay} onChange={setShowMay} label={texts.agents.showMay} />
        <Legend />
      </div>
      <div className="card agents-graph">
        <svg
          width={drawn.width}
          height={drawn.height}
          viewBox={`0 0 ${drawn.width} ${drawn.height}`}
          role="group"
          aria-label={texts.agents.graphLabel}
        >
          <defs>
            {["did", "may", "bad"].map((kind) => (
              <marker
                key={kind}
                id={`agents-arrow-${kind}`}
                className={`arrow ${kind}`}
                viewBox="0 0 8 8"
                refX="7"
                refY="4"
                markerWidth="8"
                markerHeight="8"
                markerUnits="userSpaceOnUse"
                orient="auto"
              >
                <path d="M0,0 L8,4 L0,8 z" />
              </marker>
            ))}
          </defs>
          {drawn.lines.map((line) => (
            <Line key={`${line.edge.origin} ${line.edge.target}`} line={line} near={near} />
          ))}
          {drawn.nodes.map((node) => (
            <Node key={node.name} node={node} linked={known.has(node.name)} onNear={setNear} />
          ))}
        </svg>
      </div>
      <h2>{words.title}</h2>
      <Edges
        known={known}
        edges={edges.filter((each) => each.calls > 0 || (showMay && each.origin !== USER))}
      />
    </>
  );
}

function Legend() {
  const { did, may, failed } = texts.agents.legend;
  return (
    <span className="agents-legend" aria-hidden>
      {(
        [
          ["did", did],
          ["bad", failed],
          ["may", may],
        ] as const
      ).map(([kind, label]) => (
        <span key={kind}>
          <svg width="26" height="8">
            <path className={`line ${kind}`} d="M0,4 L26,4" strokeWidth={kind === "may" ? 1 : 2.5} />
          </svg>
          {label}
        </span>
      ))}
    </span>
  );
}

const kindOf = (edge: CallEdge): string => (edge.calls === 0 ? "may" : edge.failed ? "bad" : "did");

function Line({ line, near }: { line: GraphLine; near: string | null }) {
  const { edge, path, width } = line;
  const kind = kindOf(edge);
  const isFar = near !== null && edge.origin !== near && edge.target !== near;
  return (
    <path
      className={`line ${kind} ${isFar ? "far" : ""}`}
      d={path}
      strokeWidth={width}
      markerEnd={`url(#agents-arrow-${kind})`}
    >
      <title>{texts.agents.edge(edge.origin, edge.target, count(edge.calls))}</title>
    </path>
  );
}

interface NodeProps {
  node: GraphNode;
  linked: boolean;
  onNear: (name: string | null) => void;
}

function Node({ node, linked, onNear }: NodeProps) {
  const label = texts.agents.node(node.name, count(node.calls), node.failed);
  const box = (
    <>
      <title>{label}</title>
      <rect width={NODE.width} height={NODE.height} rx="6" />
      <text x="10" y="17" className="name">
        {shortened(node.name)}
      </text>
      <text x="10" y="32" className="calls">
        {texts.agents.nodeCalls(shortCount(node.calls))}
      </text>
    </>
  );
  const place = `translate(${node.x},${node.y})`;
  const mark = { onMouseEnter: () => onNear(node.name), onMouseLeave: () => onNear(null) };
  if (!linked) {
    return (
      <g className="node" transform={place} {...mark}>
        {box}
      </g>
    );
  }
  return (
    <g transform={place} {...mark}>
      <Link
        href={`/agents/${encodeURIComponent(node.name)}`}
        className="node linked"
        aria-label={label}
        onFocus={() => onNear(node.name)}
        onBlur={() => onNear(null)}
      >
        {box}
      </Link>
    </g>
  );
}

const shortened = (name: string): string => (name.length > 20 ? `${name.slice(0, 19)}…` : name);

const nameOf = (name: string, known: Set<string>) =>
  known.has(name) ? <Link href={`/agents/${encodeURIComponent(name)}`}>{name}</Link> : name;

function Edges({ edges, known }: { edges: CallEdge[]; known: Set<string> }) {
  return (
    <div className="card table-wrap">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">{words.origin}</th>
            <th scope="col">{words.target}</th>
            <th scope="col">{words.allowed}</th>
            {[words.calls, words.failed, words.refused, words.tokens, words.mean].map((each) => (
              <th scope="col" className="number" key={each}>
                {each}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {edges.map((each) => (
            <tr key={`${each.origin} ${each.target}`}>
              <td>{nameOf(each.origin, known)}</td>
              <td>{nameOf(each.target, known)}</td>
              <td>{each.may ? words.yes : words.no}</td>
              <td className="number">{count(each.calls)}</td>
              <td className={`number figure ${each.failed ? "bad" : ""}`}>{count(each.failed)}</td>
              <td className="number">{count(each.refused)}</td>
              <td className="number" title={count(each.tokens)}>
                {shortCount(each.tokens)}
              </td>
              <td className="number">
                {each.mean_ms === null ? texts.spend.chart.none : duration(each.mean_ms)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
