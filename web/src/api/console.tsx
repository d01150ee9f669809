// Who uses this page, and what the server lets them do.

import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { ApiError, type ConsoleState, enter, onSignedOut, type Permission } from "@/api/client";

const Context = createContext<ConsoleState | null>(null);

/** The state of the console; only inside of `SignedIn`. */
export function useConsole(): ConsoleState {
  const state = useContext(Context);
  if (state === null) throw new Error("used outside of SignedIn");
  return state;
}

export const useMay = (permission: Permission): boolean => useConsole().who.permissions.includes(permission);

interface Props {
  children: ReactNode;
  signIn: (entered: (state: ConsoleState) => void) => ReactNode;
  loading: ReactNode;
  trouble: (error: unknown, again: () => void) => ReactNode;
}

/** Show the page to a browser that the server knows, and the sign-in to any other. */
export function SignedIn({ children, signIn, loading, trouble }: Props) {
  const [state, setState] = useState<ConsoleState | "loading" | "out" | { error: unknown }>("loading");
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let current = true;
    enter().then(
      (entered) => current && setState(entered),
      (error: unknown) => {
        if (current) setState(error instanceof ApiError && error.status === 401 ? "out" : { error });
      },
    );
    return () => {
      current = false;
    };
  }, [attempt]);
  useEffect(() => onSignedOut(() => setState("out")), []);
  if (state === "loading") return loading;
  if (state === "out") return signIn(setState);
  const again = () => {
    setState("loading");
    setAttempt(attempt + 1);
  };
  if ("error" in state) return trouble(state.error, again);
  return <Context value={state}>{children}</Context>;
}
