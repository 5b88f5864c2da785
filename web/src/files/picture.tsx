/**
 * A picture, drawn on a canvas: the browser decodes it and cannot run a script in it. The request carries the login and View as of this
 * page, which the address of an image could not.
 */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { fetchContent, messageOf } from '../api';
import { Icon } from '../ui';

interface PictureProps {
  /** Tried in this order: the service cannot transform pictures without the package sharp. */
  readonly paths: readonly string[];
  /** Empty if the text below the picture says the same. */
  readonly label: string;
  /** Changes with the content. */
  readonly version: string;
  /** The longest side in pixels, for pictures that the service does not transform. */
  readonly side: number;
  readonly onError?: (message: string) => void;
}

/** Pictures that are requested at the same time. */
const MOST_AT_ONCE = 4;
let running = 0;
const waiting: (() => void)[] = [];

async function inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
  if (running >= MOST_AT_ONCE) await new Promise<void>((resolve) => waiting.push(resolve));
  running++;
  try {
    return await work();
  } finally {
    running--;
    waiting.shift()?.();
  }
}

async function decode(paths: readonly string[], side: number, signal: AbortSignal): Promise<ImageBitmap> {
  let failure: unknown = new Error('The picture has no content.');
  for (const path of paths) {
    try {
      const blob = await inTurn(() => {
        signal.throwIfAborted();
        return fetchContent(path, signal);
      });
      const whole = await createImageBitmap(blob);
      const scale = side / Math.max(whole.width, whole.height);
      if (scale >= 1) return whole;
      const reduced = await createImageBitmap(whole, {
        resizeWidth: Math.max(1, Math.round(whole.width * scale)),
        resizeHeight: Math.max(1, Math.round(whole.height * scale)),
        resizeQuality: 'medium',
      });
      whole.close();
      return reduced;
    } catch (error) {
      if (signal.aborted) throw error;
      failure = error;
    }
  }
  throw failure;
}

export function Picture({ paths, label, version, side, onError }: PictureProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [state, setState] = useState<'waiting' | 'shown' | 'failed'>('waiting');
  const key = paths.join(' ');
  useEffect(() => {
    const left = new AbortController();
    const load = (): void =>
      void decode(paths, side, left.signal).then(
        (bitmap) => {
          const target = canvas.current;
          if (!target || left.signal.aborted) return bitmap.close();
          target.width = bitmap.width;
          target.height = bitmap.height;
          target.getContext('2d')?.drawImage(bitmap, 0, 0);
          bitmap.close();
          setState('shown');
        },
        (error: unknown) => {
          if (left.signal.aborted) return;
          setState('failed');
          onError?.(messageOf(error));
        },
      );
    // Pictures further down are loaded when they come into view.
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      load();
    });
    if (box.current) observer.observe(box.current);
    return () => {
      observer.disconnect();
      left.abort();
    };
  }, [key, version, side]);
  return (
    <div class={`picture ${state}`} ref={box}>
      {label === '' ? (
        <canvas ref={canvas} width={1} height={1} />
      ) : (
        <canvas ref={canvas} role="img" aria-label={label} width={1} height={1} />
      )}
      {state === 'failed' && <Icon name="file" />}
    </div>
  );
}
