// What a person can do with a run: cancel it or a part of it, retry it, resume it. Each asks first.

import { type ReactNode, useState } from "react";
import { useLocation } from "wouter";
import { act } from "@/api/client";
import { useConsole } from "@/api/console";
import type { components } from "@/api/operator";
import { useAnnounce } from "@/look/announce";
import { Confirm } from "@/look/parts";
import { texts } from "@/texts";

type RunAct = components["schemas"]["RunAct"];
export type ActName = "cancel" | "retry" | "resume";

interface Asked {
  name: ActName;
  run: string;
  delegation?: string;
  title: string;
  text: string;
  yes: string;
}

const t = texts.runs;

/** Who may read everyone's runs needs another permission to act on them; who sees only its own may act on those. */
export function useMayAct(): boolean {
  const { permissions } = useConsole().who;
  return permissions.includes("control") || !permissions.includes("read");
}

export interface Acts {
  cancel: (run: string, delegation?: { path: string; agent: string }) => void;
  retry: (run: string) => void;
  resume: (run: string) => void;
  /** The question that is asked now. */
  dialog: ReactNode;
}

export function useActs(): Acts {
  const [asked, setAsked] = useState<Asked | null>(null);
  const { say, fail } = useAnnounce();
  const [, go] = useLocation();

  const doIt = async (wanted: Asked) => {
    try {
      const body = wanted.delegation === undefined ? {} : { delegation: wanted.delegation };
      const done = await act<RunAct>(
        "POST",
        `/v1/runs/${encodeURIComponent(wanted.run)}/${wanted.name}`,
        body,
      );
      const tone = done.outcome === "refused" ? "bad" : "good";
      say(
        done.code && tone === "bad" ? `${t.outcomes[done.outcome]} ${done.code}` : t.outcomes[done.outcome],
        tone,
      );
      if (done.outcome === "retried") go(`/runs/${done.run}`);
    } catch (error) {
      fail(error);
    }
  };
  return {
    cancel: (run, delegation) =>
      setAsked({
        name: "cancel",
        run,
        ...(delegation ? { delegation: delegation.path } : {}),
        title: delegation ? t.cancelPartTitle(delegation.agent) : t.cancelTitle,
        text: delegation ? t.cancelPartText : t.cancelText,
        yes: delegation ? t.cancelPart : t.cancelRun,
      }),
    retry: (run) => setAsked({ name: "retry", run, title: t.retryTitle, text: t.retryText, yes: t.retry }),
    resume: (run) =>
      setAsked({ name: "resume", run, title: t.resumeTitle, text: t.resumeText, yes: t.resume }),
    dialog: asked ? (
      <Confirm
        open
        title={asked.title}
        text={asked.text}
        yes={asked.yes}
        onYes={() => void doIt(asked)}
        onClose={() => setAsked(null)}
      />
    ) : null,
  };
}
