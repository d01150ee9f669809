// The small parts that every view is made of.

import * as RadixSwitch from "@radix-ui/react-switch";
import * as RadixTooltip from "@radix-ui/react-tooltip";
import { Check, Copy, X } from "lucide-react";
import {
  type CSSProperties,
  type ReactNode,
  useEffect,
  useId,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { ApiError, UNREACHABLE } from "@/api/client";
import { ago, exactTime, type Tone, toneOf } from "@/look/format";
import { SEND_KEYS } from "@/look/keys";
import { texts } from "@/texts";

/** A state in a word and a colour. */
export function State({ state, word, tone }: { state: string; word?: string; tone?: Tone }) {
  const names: Record<string, string> = texts.states;
  return <span className={`badge ${tone ?? toneOf(state)}`}>{word ?? names[state] ?? state}</span>;
}

export function Badge({ children, tone = "calm" }: { children: ReactNode; tone?: Tone }) {
  return <span className={`badge bare ${tone}`}>{children}</span>;
}

/** A text that explains something on hover and on focus. */
export function Tip({ text, children }: { text: ReactNode; children: ReactNode }) {
  return (
    <RadixTooltip.Root>
      <RadixTooltip.Trigger asChild>{children}</RadixTooltip.Trigger>
      <RadixTooltip.Portal>
        <RadixTooltip.Content className="tip" sideOffset={4} collisionPadding={8}>
          {text}
        </RadixTooltip.Content>
      </RadixTooltip.Portal>
    </RadixTooltip.Root>
  );
}

/** The time now, which moves on every ten seconds: for relative times. */
export function useNow(everyMs = 10_000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** A relative time with the exact one on hover. Of what has happened (*past*) it never says that it will happen. */
export function Time({ at, past = false }: { at: number; past?: boolean }) {
  const now = useNow();
  return (
    <time dateTime={new Date(at).toISOString()} title={exactTime(at)}>
      {ago(past ? Math.min(at, now) : at, now)}
    </time>
  );
}

export function Skeleton({ width = "100%", height = "0.9rem" }: { width?: string; height?: string }) {
  const size: CSSProperties = { width, height };
  return <span className="skeleton" style={size} aria-hidden />;
}

/** Rows that stand for what is being loaded. */
export function Loading({ rows = 6 }: { rows?: number }) {
  return (
    <div className="stack" role="status" aria-label={texts.common.loading}>
      {Array.from({ length: rows }, (_, row) => (
        <Skeleton key={row} width={`${92 - ((row * 17) % 40)}%`} />
      ))}
    </div>
  );
}

/** What a view shows when there is nothing, and the command that changes that. */
export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
}) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
      {command === undefined ? null : <Command text={command} />}
    </div>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code>{text}</code>
      <CopyButton text={text} />
    </span>
  );
}

export function CopyButton({ text, label = texts.common.copy }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1_500);
  };
  const Icon = copied ? Check : Copy;
  return (
    <button
      type="button"
      className="button plain icon"
      onClick={copy}
      aria-label={copied ? texts.common.copied : label}
    >
      <Icon size={14} aria-hidden />
    </button>
  );
}

/** Return an error as two sentences: what happened, and what to do. */
export function explain(error: unknown): { title: string; advice: string; code: string } {
  if (error instanceof ApiError) {
    if (error.fault.code === UNREACHABLE) return { ...texts.errors.unreachable, code: "" };
    return { title: error.fault.message, advice: error.fault.suggestion ?? "", code: error.fault.code };
  }
  return { ...texts.errors.unexpected, code: error instanceof Error ? error.message : "" };
}

/** An error with what to do about it. */
export function Trouble({ error, again }: { error: unknown; again?: () => void }) {
  const { title, advice, code } = explain(error);
  return (
    <div className="trouble" role="alert">
      <strong>{title}</strong>
      {advice ? <span>{advice}</span> : null}
      {code ? <small>{code}</small> : null}
      {again ? (
        <div>
          <button type="button" className="button" onClick={again}>
            {texts.common.tryAgain}
          </button>
        </div>
      ) : null}
    </div>
  );
}

/** How much of a limit is used, in figures and as a bar. */
export function Meter({
  label,
  used,
  limit,
  show,
}: {
  label: string;
  used: number;
  limit: number | null;
  show: (value: number) => string;
}) {
  const share = limit === null || limit <= 0 ? 0 : Math.min(used / limit, 1);
  const tone = share >= 1 ? "full" : share >= 0.8 ? "near" : "";
  const width: CSSProperties = { width: `${share * 100}%` };
  const figures = limit === null ? show(used) : texts.common.ofLimit(show(used), show(limit));
  return (
    <div className={`meter ${tone}`}>
      <div className="figures">
        <span>{label}</span>
        <span>{figures}</span>
      </div>
      <div
        className="track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={limit ?? used}
        aria-valuenow={used}
        aria-valuetext={figures}
      >
        <div className="fill" style={width} />
      </div>
    </div>
  );
}

export function Switch({
  checked,
  onChange,
  label,
  disabled = false,
}: {
  checked: boolean;
  onChange: (on: boolean) => void;
  label: string;
  disabled?: boolean;
}) {
  const id = useId();
  return (
    <span className="row">
      <RadixSwitch.Root
        id={id}
        className="switch"
        checked={checked}
        onCheckedChange={onChange}
        disabled={disabled}
      >
        <RadixSwitch.Thumb className="thumb" />
      </RadixSwitch.Root>
      <label htmlFor={id}>{label}</label>
    </span>
  );
}

/** A window above the page; Escape closes it, and focus returns to where it was. */
export function Dialog({
  open,
  onClose,
  title,
  children,
}: {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
}) {
  return open ? (
    <OpenDialog onClose={onClose} title={title}>
      {children}
    </OpenDialog>
  ) : null;
}

// The browser's own dialog: one of a library writes inline styles, which the content security policy refuses.
function OpenDialog({
  onClose,
  title,
  children,
}: {
  onClose: () => void;
  title: string;
  children: ReactNode;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  const cancel = (event: { preventDefault: () => void }) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={name} onCancel={cancel}>
      <div className="dialog-head">
        <h2 id={name}>{title}</h2>
        <button type="button" className="button plain icon" onClick={onClose} aria-label={texts.common.close}>
          <X size={16} aria-hidden />
        </button>
      </div>
      {children}
    </dialog>
  );
}

/** Ask before an act that cannot be taken back. */
export function Confirm({
  open,
  title,
  text,
  yes,
  onYes,
  onClose,
}: {
  open: boolean;
  title: string;
  text: string;
  yes: string;
  onYes: () => void;
  onClose: () => void;
}) {
  const agree = () => {
    onClose();
    onYes();
  };
  return (
    <Dialog open={open} onClose={onClose} title={title}>
      <p>{text}</p>
      <div className="acts">
        <button type="button" className="button" onClick={onClose}>
          {texts.common.back}
        </button>
        <button type="button" className="button main" onClick={agree}>
          {yes}
        </button>
      </div>
    </Dialog>
  );
}

/** What the keys that send do here. */
export function SendKeys({ act, id }: { act: string; id?: string }) {
  return (
    <span className="send-keys" id={id}>
      <kbd>{SEND_KEYS.replace(" ", "+")}</kbd> {act}
    </span>
  );
}

/** The keys of a view, shown by `?`. */
export function KeysDialog({
  open,
  onClose,
  keys,
}: {
  open: boolean;
  onClose: () => void;
  keys: [string, string][];
}) {
  return (
    <Dialog open={open} onClose={onClose} title={texts.common.keys}>
      <dl className="facts">
        {keys.map(([key, meaning]) => (
          <div key={key} style={{ display: "contents" }}>
            <dt>
              {key.split(" ").map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div className="acts">
        <button type="button" className="button" onClick={onClose}>
          {texts.common.close}
        </button>
      </div>
    </Dialog>
  );
}
