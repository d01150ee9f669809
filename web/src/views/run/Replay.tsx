// A slider that shows the run as it was at any moment, and plays it.

import { Pause, Play } from "lucide-react";
import { useEffect, useRef } from "react";
import { duration } from "@/look/format";
import { texts } from "@/texts";

const t = texts.runs;
// However long a run took, it is played in this time: long enough to follow, short enough to wait for.
const PLAYED_MS = 12_000;

interface Props {
  span: number;
  /** Where it is; null: it is not played back. */
  until: number | null;
  playing: boolean;
  onUntil: (until: number | null) => void;
  onPlaying: (playing: boolean) => void;
}

export function Replay({ span, until, playing, onUntil, onPlaying }: Props) {
  const at = useRef(0);
  const tell = useRef({ onUntil, onPlaying });
  useEffect(() => {
    at.current = until ?? span;
    tell.current = { onUntil, onPlaying };
  });
  useEffect(() => {
    if (!playing) return;
    let frame = 0;
    let last = performance.now();
    const step = (now: number) => {
      const next = at.current + ((now - last) / PLAYED_MS) * span;
      last = now;
      tell.current.onUntil(Math.min(next, span));
      if (next >= span) tell.current.onPlaying(false);
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [playing, span]);

  const toggle = () => {
    if (!playing && (until === null || until >= span)) onUntil(0);
    onPlaying(!playing);
  };
  const Icon = playing ? Pause : Play;
  return (
    <div className="run-replay">
      <button
        type="button"
        className="button plain icon"
        onClick={toggle}
        aria-label={playing ? t.pause : t.play}
        title={playing ? t.pause : t.play}
      >
        <Icon size={16} aria-hidden />
      </button>
      <input
        type="range"
        min={0}
        max={1_000}
        value={Math.round(((until ?? span) / span) * 1_000)}
        aria-label={t.replay}
        aria-valuetext={t.at(duration(until ?? span), duration(span))}
        onChange={(event) => {
          onPlaying(false);
          onUntil((Number(event.target.value) / 1_000) * span);
        }}
      />
      <output className="soft">{t.at(duration(until ?? span), duration(span))}</output>
      {until === null ? null : (
        <button
          type="button"
          className="button"
          onClick={() => {
            onPlaying(false);
            onUntil(null);
          }}
        >
          {t.now}
        </button>
      )}
    </div>
  );
}
