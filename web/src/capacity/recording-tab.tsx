/** Records the traffic of the service in the browser, or opens a recording, and shows its shapes. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { messageOf, saveAs } from '../api';
import { TextField } from '../schema/form';
import { Button, countOf, ErrorBox } from '../ui';
import { Command, FileButton, serviceUrl, shownMs, Table } from './parts';
import { compressed, type Opened, openRecording, readRecording, record, shapesOf } from './recording';

export interface RecordingProps {
  readonly opened: Opened | null;
  readonly onOpen: (opened: Opened) => void;
}

interface Progress {
  readonly begun: number;
  readonly seconds: number;
  readonly requests: number;
}

export function RecordingTab({ opened, onOpen }: RecordingProps): JSX.Element {
  const [seconds, setSeconds] = useState('30');
  const [sample, setSample] = useState('1');
  const [progress, setProgress] = useState<Progress | null>(null);
  const [error, setError] = useState<string | null>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const begin = async (): Promise<void> => {
    stop.current = new AbortController();
    const { signal } = stop.current;
    const length = Number(seconds);
    setError(null);
    const running = { begun: performance.now(), seconds: length, requests: 0 };
    setProgress(running);
    try {
      const onProgress = (requests: number): void => setProgress({ ...running, requests });
      const text = await record({ seconds: length, sample: Number(sample), signal, onProgress });
      const recording = readRecording(text);
      onOpen({ name: `traffic-${recording.started.slice(0, 19).replaceAll(':', '-')}.lateral`, recording, text });
    } catch (failure) {
      if (!signal.aborted) setError(messageOf(failure));
    }
    setProgress(null);
  };
  const isValid = isWithin(seconds, 1, 3_600) && isWithin(sample, 0, 1) && Number(sample) > 0;
  return (
    <>
      <section class="capacity-card" aria-label="Record">
        <h2>Record the traffic</h2>
        <p class="quiet">
          The service reports the requests that it answers, without tokens, passwords and responses. Values of filters
          are part of the recording: <code>lateral record --redact</code> replaces them.
        </p>
        <div class="capacity-form">
          <TextField label="Seconds" value={seconds} onInput={setSeconds} />
          <TextField label="Share of requests" value={sample} onInput={setSample} />
          <Button
            label={progress ? 'Recording…' : 'Record'}
            icon="play"
            kind="primary"
            disabled={progress !== null || !isValid}
            onClick={() => void begin()}
          />
          <FileButton
            label="Open a recording"
            icon="upload"
            accept=".lateral,.gz,.ndjson,.jsonl"
            onFile={(file) => {
              setError(null);
              openRecording(file).then(
                (recording) => onOpen({ name: file.name, recording, text: null }),
                (failure: unknown) => setError(`${file.name}: ${messageOf(failure)}`),
              );
            }}
          />
        </div>
        {!isValid && <p class="bad">Record from 1 to 3,600 seconds, and a share above 0 and up to 1.</p>}
        {progress && <Running progress={progress} onStop={() => stop.current.abort()} />}
        {error && <ErrorBox text={error} />}
      </section>
      {opened ? (
        <Shown opened={opened} />
      ) : (
        <section class="capacity-card" aria-label="After the recording">
          <Commands name="traffic.lateral" />
        </section>
      )}
    </>
  );
}

function isWithin(text: string, least: number, most: number): boolean {
  const value = Number(text);
  return text.trim() !== '' && value >= least && value <= most;
}

function Running({ progress, onStop }: { readonly progress: Progress; readonly onStop: () => void }): JSX.Element {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 250);
    return () => clearInterval(timer);
  }, []);
  const passed = Math.min(progress.seconds, Math.max(0, (now - progress.begun) / 1_000));
  return (
    <div class="capacity-progress" role="status">
      <progress aria-label="Recording" max={progress.seconds} value={passed} />
      <span>
        {Math.floor(passed)} of {progress.seconds} s, {countOf(progress.requests, 'request')}
      </span>
      <Button label="Stop and keep" onClick={onStop} />
    </div>
  );
}

const MOST_SHAPES = 100;

function Shown({ opened }: { readonly opened: Opened }): JSX.Element {
  const { name, recording, text } = opened;
  const shapes = shapesOf(recording);
  const seconds = recording.milliseconds / 1_000;
  const omitted = recording.requests.filter((request) => request.omitted !== undefined).length;
  return (
    <section class="capacity-card" aria-label="Recording">
      <header class="row">
        <h2>{name}</h2>
        <span class="grow" />
        {text !== null && (
          <Button
            label="Download"
            icon="save"
            onClick={() => void compressed(text).then((content) => saveAs(content, name))}
          />
        )}
      </header>
      <p>
        {countOf(recording.requests.length, 'request')} in {seconds.toFixed(seconds < 10 ? 1 : 0)} s
        {seconds > 0 && ` (${shownMs(recording.requests.length / seconds)} per second)`},{' '}
        {countOf(shapes.length, 'shape')}
        {recording.sample < 1 && `, ${recording.sample * 100} % of the requests`}
        {recording.redacted && ', values replaced'}
        {omitted > 0 && `, ${omitted} without values`}
        {recording.dropped > 0 && `, ${recording.dropped} dropped`}
        {!recording.isComplete && ', stopped early'}.
      </p>
      {shapes.length === 0 ? (
        <p class="quiet">The service answered no requests during the recording.</p>
      ) : (
        <Table
          label="Shapes of the recording"
          head={['Shape', 'Requests', 'Total ms', 'p50 ms', 'p99 ms', 'Refused or failed']}
          rows={shapes
            .slice(0, MOST_SHAPES)
            .map(({ title, count, total, p50, p99, failed }) => [
              title,
              count.toLocaleString('en'),
              shownMs(total),
              shownMs(p50),
              shownMs(p99),
              failed.toLocaleString('en'),
            ])}
        />
      )}
      <Commands name={name} />
    </section>
  );
}

/** Replays run on the command line. */
function Commands({ name }: { readonly name: string }): JSX.Element {
  const file = /^[\w.-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
  return (
    <div class="capacity-commands">
      <h3>Replay it</h3>
      <p class="quiet">
        Replays run on the command line, with an administrator's token and preferably on another machine than the
        service.
      </p>
      <Command
        text={`lateral replay ${file} --url ${serviceUrl} --token $TOKEN --rate 1x --slo p99=50ms,errors=0.1% --html replay.html`}
      />
      <h3>Find the capacity</h3>
      <Command
        text={`lateral capacity ${file} --url ${serviceUrl} --token $TOKEN --slo p99=50ms,errors=0.1% --json > capacity.json`}
      />
    </div>
  );
}
