// Views whose code is loaded when they are first shown.

import { type ComponentType, useEffect, useState } from "react";
import { Loading } from "@/look/parts";

/**
 * A view that loads its code. React's own `lazy` shows what was loaded a third of a second late, so that nothing
 * flickers; here the view itself shows what it waits for, and has to ask its server first.
 */
export function loaded<Props extends object>(
  load: () => Promise<{ default: ComponentType<Props> }>,
): ComponentType<Props> {
  let known: ComponentType<Props> | null = null;
  return function Loaded(props: Props) {
    const [View, setView] = useState<ComponentType<Props> | null>(() => known);
    const [error, setError] = useState<unknown>(null);
    useEffect(() => {
      if (known !== null) return;
      load().then((module) => {
        known = module.default;
        setView(() => known);
      }, setError);
    }, []);
    if (error !== null) throw error as Error;
    return View === null ? <Loading /> : <View {...props} />;
  };
}
