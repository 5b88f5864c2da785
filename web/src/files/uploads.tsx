/** Uploads: several files at a time, each with its progress. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { messageOf, sendForm } from '../api';
import { Button } from '../ui';
import { sizeText } from './files';

interface Upload {
  readonly id: number;
  readonly file: File;
  readonly folder: string | null;
  readonly state: 'waiting' | 'sending' | 'failed';
  /** From 0 to 1. */
  readonly part: number;
  readonly error: string | null;
}

export interface Uploads {
  readonly list: readonly Upload[];
  readonly add: (files: Iterable<File>, folder: string | null) => void;
  readonly remove: (id: number) => void;
}

let lastId = 0;
/** Browsers open six connections to a host. Other requests of the page need some of them. */
const MOST_AT_ONCE = 3;

/** Leaving the page cancels what is not stored yet. */
export function useUploads(onStored: () => void): Uploads {
  const [list, setList] = useState<readonly Upload[]>([]);
  const sending = useRef(new Map<number, AbortController>());
  const change = (id: number, part: Partial<Upload>): void =>
    setList((all) => all.map((each) => (each.id === id ? { ...each, ...part } : each)));
  const remove = (id: number): void => {
    sending.current.get(id)?.abort();
    setList((all) => all.filter((each) => each.id !== id));
  };
  useEffect(
    () => () => {
      for (const request of sending.current.values()) request.abort();
    },
    [],
  );
  const send = ({ id, file, folder }: Upload): void => {
    const request = new AbortController();
    sending.current.set(id, request);
    change(id, { state: 'sending' });
    sendForm('POST', '/files?fields=id', formOf(file, { folder }), {
      onProgress: (part) => change(id, { part }),
      signal: request.signal,
    })
      .then(
        () => {
          setList((all) => all.filter((each) => each.id !== id));
          onStored();
        },
        (error: unknown) => {
          if (!request.signal.aborted) change(id, { state: 'failed', error: messageOf(error) });
        },
      )
      .finally(() => {
        sending.current.delete(id);
        setList((all) => [...all]);
      });
  };
  useEffect(() => {
    const waiting = list.filter(({ id, state }) => state === 'waiting' && !sending.current.has(id));
    for (const next of waiting.slice(0, MOST_AT_ONCE - sending.current.size)) send(next);
  }, [list]);
  const add = (files: Iterable<File>, folder: string | null): void =>
    setList((all) => [
      ...all,
      ...[...files].map((file) => ({
        id: ++lastId,
        file,
        folder,
        state: 'waiting' as const,
        part: 0,
        error: null,
      })),
    ]);
  return { list, add, remove };
}

/** The API expects the fields before their file. */
export function formOf(file: File, fields: Readonly<Record<string, string | null>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) if (value !== null) form.append(name, value);
  form.append('file', file, file.name);
  return form;
}

export function UploadList({ uploads: { list, remove } }: { readonly uploads: Uploads }): JSX.Element | null {
  if (list.length === 0) return null;
  return (
    <ul class="uploads" aria-label="Uploads">
      {list.map(({ id, file, state, part, error }) => (
        <li key={id}>
          <span class="upload-name">{file.name}</span>
          <small>{sizeText(file.size)}</small>
          {state === 'failed' ? (
            <span class="bad" role="alert">
              {error}
            </span>
          ) : (
            <progress aria-label={`Progress of ${file.name}`} max={1} value={part} />
          )}
          <Button
            label={`${state === 'failed' ? 'Dismiss' : 'Cancel'} ${file.name}`}
            icon="close"
            kind="quiet"
            compact
            onClick={() => remove(id)}
          />
        </li>
      ))}
    </ul>
  );
}
