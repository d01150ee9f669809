// Where a verification found the record changed, in words.

import type { components } from "@/api/operator";
import { texts } from "@/texts";

export type Finding = components["schemas"]["AuditFinding"];

const places = texts.audit.verification.place;

const OF_CHECKPOINTS = new Set([
  "checkpoint forged",
  "checkpoint missing",
  "checkpoints disagree",
  "anchor forged",
]);

/** The place of a finding: rows, checkpoints, or the whole record. */
export function placeOf(finding: Finding): string {
  const { first, last } = finding;
  if (first === 0) return places.whole;
  if (OF_CHECKPOINTS.has(finding.tampering)) {
    return first === last ? places.checkpoint(first) : places.checkpoints(first, last);
  }
  return first === last ? places.row(first) : places.rows(first, last);
}

/** The first row of a finding; null if it is about something else. */
export function rowOf(finding: Finding): number | null {
  return finding.first === 0 || OF_CHECKPOINTS.has(finding.tampering) ? null : finding.first;
}

/** What a finding means. */
export const meaningOf = (finding: Finding): string =>
  texts.audit.verification.findings[finding.tampering] ?? finding.message;
