/** The indexes or the checks of a collection. */
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { model, reloadModel } from '../state';

interface Parts<Part> {
  /** Null until they are loaded. */
  readonly parts: readonly Part[] | null;
  readonly error: string | null;
  readonly load: () => Promise<void>;
  /** Returns what the page says then. */
  readonly drop: (part: Part) => Promise<string>;
}

/** Loads them from the path, and again when the model changes. */
export function useParts<Part extends { readonly name: string }>(path: string): Parts<Part> {
  const [parts, setParts] = useState<readonly Part[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const known = model.value;
  const load = (): Promise<void> =>
    call<Part[]>('GET', path).then(
      ({ data }) => setParts(data),
      (failure: unknown) => setError(messageOf(failure)),
    );
  useEffect(() => void load(), [known, path]);
  const drop = async ({ name }: Part): Promise<string> => {
    await call('DELETE', `${path}/${encodeURIComponent(name)}`);
    await reloadModel();
    await load();
    return `${name} was dropped`;
  };
  return { parts, error, load, drop };
}
