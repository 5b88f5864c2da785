/** Advice about indexes for the requests of a recording. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import type { Model } from '../model';
import { model as modelSignal } from '../state';
import { Button, copyText, countOf, ErrorBox } from '../ui';
import { type Advised, adviseOn, MOST_PLANNED } from './advice';
import { Command, FileButton } from './parts';
import { openRecording, shapesOf } from './recording';
import type { RecordingProps } from './recording-tab';

export function AdviceTab({ opened, onOpen }: RecordingProps): JSX.Element {
  const [advised, setAdvised] = useState<Advised | null>(null);
  const [done, setDone] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const shapes = opened ? shapesOf(opened.recording) : [];
  const reads = Math.min(MOST_PLANNED, shapes.filter(({ example }) => example !== null).length);
  const run = async (): Promise<void> => {
    setDone(0);
    setError(null);
    try {
      setAdvised(await adviseOn(shapes, modelSignal.value as Model, setDone));
    } catch (failure) {
      setError(messageOf(failure));
    }
    setDone(null);
  };
  return (
    <section class="capacity-card" aria-label="Index advice">
      <h2>Indexes for recorded requests</h2>
      <p class="quiet">
        The service plans the recorded reads, and its adviser names indexes where PostgreSQL reads whole tables.{' '}
        <code>lateral advise</code> also tries each index on an empty copy with the statistics of the database.
      </p>
      <div class="row">
        {opened ? (
          <Button
            label={
              done === null ? `Plan ${countOf(reads, 'shape')} of ${opened.name}` : `Planning ${done} of ${reads}…`
            }
            icon="play"
            kind="primary"
            disabled={done !== null || reads === 0}
            onClick={() => void run()}
          />
        ) : (
          <p>Make a recording first, or open one:</p>
        )}
        <FileButton
          label="Open a recording"
          icon="upload"
          accept=".lateral,.gz,.ndjson,.jsonl"
          onFile={(file) => {
            setError(null);
            setAdvised(null);
            openRecording(file).then(
              (recording) => onOpen({ name: file.name, recording, text: null }),
              (failure: unknown) => setError(`${file.name}: ${messageOf(failure)}`),
            );
          }}
        />
      </div>
      {error && <ErrorBox text={error} />}
      {advised && <Found advised={advised} />}
      <h3>Try the indexes first</h3>
      <Command text={`lateral advise --traffic ${opened?.name ?? 'traffic.lateral'} --database-url $DATABASE_URL`} />
    </section>
  );
}

function Found({ advised }: { readonly advised: Advised }): JSX.Element {
  const { advice, planned, failures } = advised;
  return (
    <div class="hints" role="status">
      <h3>
        {advice.length === 0 ? 'No index is missing' : `${countOf(advice.length, 'proposal')}`} for{' '}
        {countOf(planned, 'shape')}
      </h3>
      {advice.map(({ statement, text, titles, share }) => (
        <div class="hint" key={statement}>
          <p>
            {text} {Math.round(share * 100)} % of the recorded time: {titles.slice(0, 3).join(', ')}
            {titles.length > 3 && ` and ${titles.length - 3} more`}
          </p>
          <div class="row">
            <code>{statement}</code>
            <Button
              label="Copy the statement"
              icon="copy"
              kind="quiet"
              compact
              onClick={() => void copyText(statement)}
            />
          </div>
        </div>
      ))}
      {failures.length > 0 && (
        <details>
          <summary>{countOf(failures.length, 'shape')} could not be planned</summary>
          <ul>
            {failures.map((failure) => (
              <li key={failure}>{failure}</li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}
