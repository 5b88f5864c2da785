/** The statements of the last five minutes, which Pulse and Capacity show. */
import { useState } from 'preact/hooks';
import { call } from '../api';
import { usePolling } from '../polling';
import type { Shape } from './summary';

const EVERY_MS = 4_000;

/** The shapes are null until the first answer. They are read at once again if `turn` changes. */
export function useShapes(limit: number, turn = 0): [shapes: readonly Shape[] | null, error: string | null] {
  const [shapes, setShapes] = useState<readonly Shape[] | null>(null);
  const [error] = usePolling(
    {
      ask: () => call<Shape[]>('GET', `/server/shapes?limit=${limit}`),
      take: ({ data }) => setShapes(data),
      everyMs: EVERY_MS,
    },
    [turn],
  );
  return [shapes, error];
}
