// Delegations for unit tests.

import { parentOf, type Row, type Rows } from "@/views/run/model";

const PLAIN: Omit<Row, "path" | "parent"> = {
  agent: "agent",
  origin: "user",
  capability: "",
  objective: "",
  state: "success",
  code: "",
  note: "",
  started: 0,
  took: 0,
  own: 0,
  tokens: 0,
  ownTokens: 0,
  tools: 0,
  cost: null,
  ownCost: null,
};

export function sampleRows(given: (Partial<Row> & { path: string })[]): Rows {
  return new Map(given.map((each) => [each.path, { ...PLAIN, parent: parentOf(each.path), ...each }]));
}
