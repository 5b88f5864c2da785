/** Figures that a page reads again and again while it is open. */
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from './api';

interface Polling<Data> {
  readonly ask: () => Promise<Data>;
  /** Called with each answer while the page is open. It returns false to end the polling. */
  readonly take: (data: Data) => unknown;
  readonly everyMs: number;
}

/** The error of the last request, and a function that sets it. The polling begins again if an input changes. */
export function usePolling<Data>(
  { ask, take, everyMs }: Polling<Data>,
  inputs: readonly unknown[],
): [error: string | null, setError: (error: string | null) => void] {
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const read = async (): Promise<void> => {
      try {
        const data = await ask();
        if (ended) return;
        setError(null);
        ended = take(data) === false;
      } catch (failure) {
        if (!ended) setError(messageOf(failure));
      }
      if (!ended) timer = window.setTimeout(read, everyMs);
    };
    void read();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, inputs);
  return [error, setError];
}
