// Pairing with another device: a code with its QR code, or the code that the other one shows.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type SyntheticEvent, useState } from "react";
import { act, get } from "@/api/client";
import type { components } from "@/api/shared";
import { Command, CopyButton, Dialog, Loading, Switch, Trouble } from "@/look/parts";
import { texts } from "@/texts";
import { qrOf } from "@/views/pairing/qr";
import "./pairing.css";

type Pairing = components["schemas"]["PairingView"];
const PATH = "/v1/shared/pairings";
// A person waits and looks at it.
const LOOK_MS = 700;

interface Props {
  agents: string[];
  profiles: string[];
  onClose: () => void;
}

export function PairingDialog({ agents, profiles, onClose }: Props) {
  const [begun, setBegun] = useState<Pairing | null>(null);
  const queries = useQueryClient();
  const close = (now: Pairing | null) => {
    // A code that nobody looks at any more must not work.
    if (now && ["starting", "waiting", "joining"].includes(now.state)) {
      act("DELETE", `${PATH}/${now.id}`).catch(() => undefined);
    }
    void queries.invalidateQueries({ queryKey: ["shared"] });
    onClose();
  };
  return (
    <Dialog open onClose={() => close(begun)} title={texts.devices.pairing.title}>
      {begun ? (
        <Progress begun={begun} onClose={close} onAgain={() => setBegun(null)} />
      ) : (
        <Begin agents={agents} profiles={profiles} onBegun={setBegun} />
      )}
    </Dialog>
  );
}

function Begin({
  agents,
  profiles,
  onBegun,
}: {
  agents: string[];
  profiles: string[];
  onBegun: (pairing: Pairing) => void;
}) {
  const [code, setCode] = useState("");
  const [own, setOwn] = useState(false);
  const [granted, setGranted] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const words = texts.devices.pairing;
  const start = async (typed: string | null, event?: SyntheticEvent) => {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    const chosen = (kind: string, names: string[]) => names.filter((name) => granted.has(`${kind} ${name}`));
    const grants = { agents: chosen("agent", agents), profiles: chosen("profile", profiles), own };
    try {
      onBegun(await act<Pairing>("POST", PATH, typed === null ? grants : { ...grants, code: typed }));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const grant = (key: string, on: boolean) => {
    const next = new Set(granted);
    if (on) next.add(key);
    else next.delete(key);
    setGranted(next);
  };
  const switches = (kind: string, names: string[]) =>
    names.map((name) => (
      <Switch
        key={name}
        label={name}
        checked={own || granted.has(`${kind} ${name}`)}
        disabled={own}
        onChange={(on) => grant(`${kind} ${name}`, on)}
      />
    ));
  return (
    <>
      <p>{words.how}</p>
      <fieldset className="pairing-grants">
        <legend className="label">{words.grants}</legend>
        {agents.length > 0 ? <span className="soft">{words.ask}</span> : null}
        {switches("agent", agents)}
        {profiles.length > 0 ? <span className="soft">{words.askedBy}</span> : null}
        {switches("profile", profiles)}
        <Switch label={words.own} checked={own} onChange={setOwn} />
      </fieldset>
      {error ? <Trouble error={error} /> : null}
      <div className="acts start">
        <button type="button" className="button main" disabled={busy} onClick={() => void start(null)}>
          {words.newCode}
        </button>
      </div>
      <form className="field" onSubmit={(event) => void start(code, event)}>
        <label htmlFor="pairing-code">{words.haveCode}</label>
        <div className="pairing-join">
          <input
            id="pairing-code"
            className="input"
            value={code}
            autoComplete="off"
            spellCheck={false}
            maxLength={2_000}
            onChange={(event) => setCode(event.target.value)}
          />
          <button type="submit" className="button" disabled={busy || !code.trim()}>
            {words.join}
          </button>
        </div>
        <span className="hint">{words.codeHint}</span>
      </form>
    </>
  );
}

function Progress({
  begun,
  onClose,
  onAgain,
}: {
  begun: Pairing;
  onClose: (now: Pairing) => void;
  onAgain: () => void;
}) {
  const query = useQuery({
    queryKey: ["shared", "pairing", begun.id],
    queryFn: () => get<Pairing>(`${PATH}/${begun.id}`),
    initialData: begun,
    refetchInterval: ({ state }) =>
      state.data && ["paired", "failed", "cancelled"].includes(state.data.state) ? false : LOOK_MS,
  });
  const now = query.data;
  const words = texts.devices.pairing;
  const closing = (text: string, main = false) => (
    <div className="acts">
      {main ? null : (
        <button type="button" className="button" onClick={onAgain}>
          {words.again}
        </button>
      )}
      <button type="button" className={`button ${main ? "main" : ""}`} onClick={() => onClose(now)}>
        {text}
      </button>
    </div>
  );
  if (now.state === "paired") {
    return (
      <div className="stack" role="status">
        <strong>{words.paired(now.device_name)}</strong>
        <p className="pairing-words">{now.words}</p>
        <p>{words.compare}</p>
        {now.is_confirmed ? null : <p className="banner warn">{words.unconfirmed}</p>}
        {closing(words.done, true)}
      </div>
    );
  }
  if (now.state === "failed" || now.state === "cancelled") {
    return (
      <div className="stack" role="alert">
        <strong>{now.state === "failed" ? words.failed : words.cancelled}</strong>
        {now.message ? <span>{now.message}</span> : null}
        {now.suggestion ? <span>{now.suggestion}</span> : null}
        {closing(texts.common.close)}
      </div>
    );
  }
  return (
    <div className="stack">
      {now.code ? <Code pairing={now} /> : <Loading rows={2} />}
      <p role="status">{words[now.state]}</p>
      {query.error ? <Trouble error={query.error} /> : null}
      <div className="acts">
        <button type="button" className="button" onClick={() => onClose(now)}>
          {words.cancel}
        </button>
      </div>
    </div>
  );
}

function Code({ pairing }: { pairing: Pairing }) {
  const words = texts.devices.pairing;
  const qr = qrOf(pairing.qr_svg);
  return (
    <>
      <p className="pairing-code">
        <strong>{pairing.code}</strong>
        <CopyButton text={pairing.code} />
      </p>
      {qr ? (
        <svg className="pairing-qr" viewBox={`0 0 ${qr.size} ${qr.size}`} role="img" aria-label={words.qr}>
          <rect width={qr.size} height={qr.size} className="paper" />
          <path d={qr.path} className="ink" />
        </svg>
      ) : null}
      <div className="row">
        <CopyButton text={pairing.link} label={words.link} />
        <span>{words.link}</span>
      </div>
      <span className="label">{words.type}</span>
      <Command text={words.command(pairing.code)} />
      <small>{words.expires}</small>
    </>
  );
}
