// A whole conversation as a file: Markdown for people, JSON for programs.

import { get } from "@/api/client";
import type { components } from "@/api/shared";
import { bytes, exactTime } from "@/look/format";
import { texts } from "@/texts";
import { rulesOf, timelineOf } from "@/views/chat/model";
import type { Entry, Run } from "@/views/chat/store";

/** Read all entries of a run, the oldest first. */
export async function allEntries(run: string): Promise<Entry[]> {
  const pages: Entry[][] = [];
  let before: string | null = "";
  do {
    const query: Record<string, string | number> = { limit: 1_000, before };
    const page: components["schemas"]["EntryList"] = await get(`/v1/shared/runs/${run}/entries`, query);
    pages.unshift(page.entries);
    before = page.next;
  } while (before !== null);
  return pages.flat();
}

export function asJson(run: Run, entries: readonly Entry[], device: string): string {
  const { id, objective, profile, agent, mode, state, ended, banner, result, turn, tokens, active_ms } = run;
  const about = {
    id,
    objective,
    profile,
    agent,
    mode,
    state,
    ended,
    banner,
    result,
    turn,
    tokens,
    active_ms,
  };
  const said = timelineOf(run, entries).map(({ entry }) => entry);
  const document = { format: "remit.conversation/1", ...about, device: { id: run.device, name: device } };
  return `${JSON.stringify({ ...document, entries: said }, null, 2)}\n`;
}

export function asMarkdown(run: Run, entries: readonly Entry[], device: string): string {
  const words = texts.chat.exported;
  const items = timelineOf(run, entries).map(({ entry }) => entry);
  const facts: [string, string][] = [
    [words.with, run.agent ? `${run.agent} (${device})` : device],
    [words.profile, run.profile],
    [words.mode, texts.chat.modes[run.mode]],
    [words.state, texts.chat.states[run.state]],
    [words.turns, String(run.turn)],
  ];
  const parts = [
    `# ${run.objective ? oneLine(run.objective) : texts.chat.plain}`,
    facts.map(([name, value]) => `- ${name}: ${value}`).join("\n"),
    ...items.map(entryText),
  ];
  if (run.banner) parts.push(`> ${oneLine(run.banner)}`);
  if (run.result) parts.push(`## ${words.result}\n\n${fenced(run.result)}`);
  return `${parts.join("\n\n")}\n`;
}

function entryText(entry: Entry): string {
  const words = texts.chat.exported;
  const label = entry.label ? ` (${texts.chat.labels[entry.label]})` : "";
  const who = entry.written_by.name;
  const lines = [
    `## ${texts.chat.roles[entry.role]}${who ? `, ${who}` : ""}${label}`,
    `*${exactTime(entry.at_ms)}*`,
    fenced(entry.text),
  ];
  for (const { rule, why } of rulesOf(entry.reviews))
    lines.push(`- ${words.rule} \`${rule}\`: ${oneLine(why)}`);
  if (entry.original) lines.push(`${words.original}:`, fenced(entry.original));
  if (entry.reason) lines.push(`${words.reason}: ${oneLine(entry.reason)}`);
  if (entry.failed) lines.push(`${words.failed}: ${oneLine(entry.failed)}`);
  for (const file of entry.files) lines.push(`- ${words.file}: ${file.name} (${bytes(file.size)})`);
  return lines.join("\n\n");
}

const oneLine = (text: string): string => text.replace(/\s+/g, " ").trim();

/** A text as it is, whatever Markdown it holds: in a fence that is longer than any in it. */
function fenced(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((found) => found.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}text\n${text}\n${fence}`;
}
