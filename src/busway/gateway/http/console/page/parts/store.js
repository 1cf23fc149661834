/** A value that components follow. */
import { useEffect, useState } from "preact/hooks";

/**
 * @template T
 * @typedef {{ value: T, set: (value: T) => void, follow: (told: (value: T) => void) => () => void }} Store
 */

/**
 * @template T
 * @param {T} first
 * @returns {Store<T>}
 */
export function makeStore(first) {
  const followers = new Set();
  const store = {
    value: first,
    set(value) {
      store.value = value;
      for (const told of [...followers]) told(value);
    },
    follow(told) {
      followers.add(told);
      return () => followers.delete(told);
    },
  };
  return store;
}

/**
 * The store's value; the component is drawn anew when it changes.
 * @template T
 * @param {Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [, redraw] = useState(0);
  useEffect(() => {
    redraw((count) => count + 1); // it may have changed between drawing and here
    return store.follow(() => redraw((count) => count + 1));
  }, [store]);
  return store.value;
}
