/** Opens the report of a replay or of a search for the capacity. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import { ErrorBox } from '../ui';
import { FileButton, Table } from './parts';
import { type Report, readReport } from './report';

export function ReportTab(): JSX.Element {
  const [report, setReport] = useState<Report | null>(null);
  const [error, setError] = useState<string | null>(null);
  const open = async (file: File): Promise<void> => {
    try {
      setReport(readReport(await file.text()));
      setError(null);
    } catch (failure) {
      setReport(null);
      setError(`${file.name}: ${messageOf(failure)}`);
    }
  };
  return (
    <section class="capacity-card" aria-label="Report">
      <h2>Report of a replay</h2>
      <p class="quiet">
        A file of <code>lateral replay --html</code> or <code>--json</code>, or of <code>lateral capacity --json</code>.
        It stays in this browser.
      </p>
      <div class="row">
        <FileButton label="Open a report" icon="upload" accept=".json,.html,.htm" onFile={(file) => void open(file)} />
      </div>
      {error && <ErrorBox text={error} />}
      {report && (
        <>
          <h3>{report.title}</h3>
          <ul class="capacity-notes">
            {report.notes.map(({ text, kind }) => (
              <li key={text} class={kind === 'plain' ? '' : kind}>
                {text}
              </li>
            ))}
          </ul>
          <Table label="Figures of the report" head={report.head} rows={report.rows} />
        </>
      )}
    </section>
  );
}
