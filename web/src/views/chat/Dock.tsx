// Always in sight below a conversation: what waits for the person, the controls, and how much of each limit is used.

import { Hand, Paperclip, Pause, Play, Square, Undo2 } from "lucide-react";
import { type ChangeEvent, useState } from "react";
import { act, upload, withQuery } from "@/api/client";
import { useConsole } from "@/api/console";
import { useAnnounce } from "@/look/announce";
import { count, duration } from "@/look/format";
import { Confirm, Meter, useNow } from "@/look/parts";
import { texts } from "@/texts";
import { type Acting, pathOf } from "@/views/chat/acts";
import { Banners } from "@/views/chat/Banners";
import { Composer } from "@/views/chat/Composer";
import { DraftBox, LeftEdits } from "@/views/chat/DraftBox";
import { activeMs, hasEnded } from "@/views/chat/model";
import { Files } from "@/views/chat/parts";
import { Questions } from "@/views/chat/Questions";
import { type FileView, type KnownRun, type Run, useShared } from "@/views/chat/store";

export function Dock({ known, acting }: { known: KnownRun; acting: Acting }) {
  const run = known.view;
  const ended = hasEnded(run);
  return (
    <div className="chat-dock" role="region" aria-label={texts.chat.dock}>
      <div className="chat-dock-scroll">
        <Banners run={run} />
        <LeftEdits run={run} />
        <Questions run={run} acting={acting} />
        {run.draft ? <DraftBox key={run.draft.id} run={run} draft={run.draft} acting={acting} /> : null}
        {run.decides === "person" && !ended ? <Composer run={run} acting={acting} /> : null}
        <Attached run={run} />
      </div>
      <div className="chat-controls">
        {ended ? null : <Controls run={run} acting={acting} />}
        <Meters known={known} />
      </div>
    </div>
  );
}

function Controls({ run, acting }: { run: Run; acting: Acting }) {
  const [stopping, setStopping] = useState(false);
  const [agent, setAgent] = useState("");
  const offers = useShared(({ devices }) => devices.get(run.device)?.offers) ?? [];
  const { may } = acting;
  const words = texts.chat;
  const asks = run.agent === "" && offers.length > 1 && run.acts.includes("resume");
  const resume = () => void acting.act("resume", agent ? { agent } : {});
  return (
    <div className="chat-acts">
      {run.acts.includes("resume") ? (
        <button type="button" className="button main" disabled={!may("resume")} onClick={resume}>
          <Play size={14} aria-hidden />
          {words.resume}
        </button>
      ) : (
        <button
          type="button"
          className="button"
          disabled={!may("pause")}
          onClick={() => void acting.act("pause")}
        >
          <Pause size={14} aria-hidden />
          {words.pause}
        </button>
      )}
      {asks ? (
        <select
          className="input"
          aria-label={words.resumeAgent}
          value={agent}
          onChange={(event) => setAgent(event.target.value)}
        >
          <option value="">{words.resumeAgent}</option>
          {offers.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      ) : null}
      {run.decides === "agent" ? (
        <button
          type="button"
          className="button"
          disabled={!may("take_over")}
          onClick={() => void acting.act("take_over")}
        >
          <Hand size={14} aria-hidden />
          {words.takeOver}
        </button>
      ) : (
        <button
          type="button"
          className="button"
          disabled={!may("hand_back")}
          onClick={() => void acting.act("hand_back")}
          title={run.objective ? undefined : words.needsObjective}
        >
          <Undo2 size={14} aria-hidden />
          {words.handBack}
        </button>
      )}
      <button
        type="button"
        className="button danger"
        disabled={!may("stop")}
        onClick={() => setStopping(true)}
      >
        <Square size={14} aria-hidden />
        {words.stop}
      </button>
      <Attach run={run} />
      <Confirm
        open={stopping}
        title={words.stopTitle}
        text={words.stopText}
        yes={words.stop}
        onYes={() => void acting.act("stop")}
        onClose={() => setStopping(false)}
      />
    </div>
  );
}

function Attach({ run }: { run: Run }) {
  const { who } = useConsole();
  const { fail } = useAnnounce();
  const [busy, setBusy] = useState(false);
  const attach = async (event: ChangeEvent<HTMLInputElement>) => {
    const files = [...(event.target.files ?? [])];
    event.target.value = "";
    setBusy(true);
    try {
      for (const file of files) {
        const path = withQuery(`${pathOf(run.id)}/files`, { name: file.name, by: who.name });
        await upload(path, file, file.type || "application/octet-stream");
      }
    } catch (error) {
      fail(error);
    }
    setBusy(false);
  };
  return (
    <label className="button chat-attach" aria-disabled={busy}>
      <Paperclip size={14} aria-hidden />
      <span className="chat-wide">{texts.chat.attach}</span>
      <input type="file" multiple className="unseen" onChange={attach} disabled={busy} />
    </label>
  );
}

function Attached({ run }: { run: Run }) {
  const { who } = useConsole();
  const { fail } = useAnnounce();
  if (run.attached.length === 0) return null;
  const remove = async (file: FileView) => {
    try {
      await act(
        "DELETE",
        withQuery(`${pathOf(run.id)}/files/${encodeURIComponent(file.id)}`, { by: who.name }),
      );
    } catch (error) {
      fail(error);
    }
  };
  return (
    <div className="chat-attached">
      <span className="label">{texts.chat.attached}</span>
      <Files run={run.id} files={run.attached} onRemove={(file) => void remove(file)} />
    </div>
  );
}

/** A time that does not flicker while it grows. */
const wholeSeconds = (ms: number): string =>
  ms < 60_000 ? texts.chat.seconds(Math.floor(ms / 1_000)) : duration(Math.floor(ms / 1_000) * 1_000);

function Meters({ known }: { known: KnownRun }) {
  const run = known.view;
  const now = useNow(1_000);
  const { limits } = run;
  const words = texts.chat.meters;
  return (
    <div className="chat-meters">
      <Meter label={words.turns} used={limits?.turns.used ?? run.turn} limit={run.max_turns} show={count} />
      <Meter
        label={words.active_ms}
        used={activeMs(run, known.atMs, now)}
        limit={run.max_duration_ms}
        show={wholeSeconds}
      />
      <Meter label={words.tokens} used={run.tokens} limit={run.max_tokens} show={count} />
      <Meter label={words.failures} used={run.failures} limit={run.max_failures} show={count} />
      {limits ? (
        <small className="chat-rate">
          {texts.chat.calls(limits.calls.used, limits.calls.most ?? 0)}
          {" · "}
          {texts.chat.rate(limits.rate.used, limits.rate.most, duration(limits.rate.window_ms))}
        </small>
      ) : null}
    </div>
  );
}
