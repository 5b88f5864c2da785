/** The parts that the tabs of Capacity share. */
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { base } from '../api';
import { Button, copyText, type IconName } from '../ui';

interface FileButtonProps {
  readonly label: string;
  readonly icon: IconName;
  readonly accept: string;
  readonly onFile: (file: File) => void;
}

export function FileButton({ label, icon, accept, onFile }: FileButtonProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button label={label} icon={icon} onClick={() => input.current?.click()} />
      <input
        ref={input}
        type="file"
        hidden
        accept={accept}
        aria-label={label}
        onChange={(event) => {
          const [file] = event.currentTarget.files ?? [];
          // The same file can be chosen again after a change.
          event.currentTarget.value = '';
          if (file) onFile(file);
        }}
      />
    </>
  );
}

/** The address of this service, for commands. */
export const serviceUrl = `${location.origin}${base}`;

export function Command({ text }: { readonly text: string }): JSX.Element {
  return (
    <div class="capacity-command">
      <code>{text}</code>
      <Button
        label={`Copy ${text.split(' ').slice(1, 3).join(' ')}`}
        icon="copy"
        kind="quiet"
        compact
        onClick={() => void copyText(text)}
      />
    </div>
  );
}

export function shownMs(value: number): string {
  return value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}

interface TableProps {
  readonly label: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly (JSX.Element | string)[])[];
}

/** Numbers are on the right, except in the first column. */
export function Table({ label, head, rows }: TableProps): JSX.Element {
  return (
    <div class="result-table capacity-table" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((name, at) => (
              <th key={name} scope="col" class={at > 0 ? 'number' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, index) => (
            <tr key={index}>
              {cells.map((cell, at) => (
                <td key={at} class={at > 0 ? 'number' : ''} title={typeof cell === 'string' ? cell : undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
