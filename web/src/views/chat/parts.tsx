// Small parts of conversations: who speaks, presence, mode, files, texts.

import { Bot, CircleUser, Download, Radio, Satellite, X } from "lucide-react";
import { lazy, Suspense, useId, useState } from "react";
import { download } from "@/api/client";
import { useAnnounce } from "@/look/announce";
import { bytes } from "@/look/format";
import { Loading, Time } from "@/look/parts";
import { texts } from "@/texts";
import { pathOf } from "@/views/chat/acts";
import type { Device, Entry, FileView, Mode } from "@/views/chat/store";
import "./chat.css";

const WordDiff = lazy(() => import("@/views/chat/WordDiff"));

const ICONS = { local_agent: Bot, remote_agent: Satellite, user: CircleUser };

export function Avatar({ of: role }: { of: Entry["role"] }) {
  const Icon = ICONS[role];
  return (
    <span className={`chat-avatar ${role}`} aria-hidden>
      <Icon size={16} />
    </span>
  );
}

/** Whether a device is connected, in words. */
export function Presence({ device }: { device: Device }) {
  const { present, last_heard_ms: heard } = device;
  const words = texts.chat;
  const word = present === null ? words.unknownPresence : present ? words.present : words.away;
  return (
    <span className={`chat-presence ${present ? "here" : ""}`}>
      <Radio size={12} aria-hidden />
      {word}
      {present === false && heard !== null ? (
        <span>
          {", "}
          {words.lastHeard} <Time at={heard} past />
        </span>
      ) : null}
    </span>
  );
}

/** Which drafts a person sees first. */
export function ModeChoice({
  mode,
  onChoose,
  name,
  disabled = false,
}: {
  mode: Mode;
  onChoose: (mode: Mode) => void;
  name: string;
  disabled?: boolean;
}) {
  const hint = useId();
  return (
    <fieldset className="chat-mode" disabled={disabled} aria-describedby={hint}>
      <legend className="label">{texts.chat.mode}</legend>
      <div className="choices">
        {(Object.keys(texts.chat.modes) as Mode[]).map((each) => (
          <label key={each} className="choice">
            <input type="radio" name={name} checked={each === mode} onChange={() => onChoose(each)} />
            <span>{texts.chat.modes[each]}</span>
          </label>
        ))}
      </div>
      <span className="hint" id={hint}>
        {texts.chat.modeHints[mode]}
      </span>
    </fieldset>
  );
}

export function Files({
  run,
  files,
  onRemove,
}: {
  run: string;
  files: readonly FileView[];
  onRemove?: (file: FileView) => void;
}) {
  const { fail } = useAnnounce();
  if (files.length === 0) return null;
  return (
    <ul className="chat-files">
      {files.map((file) => (
        <li key={file.id || file.name}>
          {file.refused ? (
            <span>
              {file.name} <span className="wrong">{texts.chat.refused(file.refused)}</span>
            </span>
          ) : (
            <button
              type="button"
              className="link"
              aria-label={texts.chat.download(file.name)}
              onClick={() => {
                const path = `${pathOf(run)}/files/${encodeURIComponent(file.id)}`;
                void download(path, file.name).catch(fail);
              }}
            >
              <Download size={12} aria-hidden />
              {file.name} <small>{bytes(file.size)}</small>
            </button>
          )}
          {onRemove ? (
            <button
              type="button"
              className="button plain icon"
              aria-label={texts.chat.detach(file.name)}
              onClick={() => onRemove(file)}
            >
              <X size={12} aria-hidden />
            </button>
          ) : null}
        </li>
      ))}
    </ul>
  );
}

// About a screen of text.
const LONG = 2_000;

/** A text as it was written; a long one is shown in part first. */
export function Said({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  if (text.length <= LONG) return <p className="chat-text">{text}</p>;
  return (
    <>
      <p className="chat-text">{whole ? text : `${text.slice(0, LONG)}…`}</p>
      <button type="button" className="button plain" onClick={() => setWhole(!whole)} aria-expanded={whole}>
        {whole ? texts.chat.less : texts.chat.whole}
      </button>
    </>
  );
}

/** What was changed from one text to the other; the comparison is loaded when it is first shown. */
export function Changes({ before, now }: { before: string; now: string }) {
  return (
    <Suspense fallback={<Loading rows={1} />}>
      <WordDiff before={before} now={now} />
    </Suspense>
  );
}
