/** Export of the shown items, with its progress. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { download, messageOf } from '../api';
import type { Collection, Model } from '../model';
import { toast } from '../state';
import { Button, Dialog, ErrorBox } from '../ui';
import { queryOf, type View } from './source';
import { describeCount } from './values';

export const EXPORT_FORMATS = ['csv', 'json', 'ndjson', 'xml', 'yaml'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

interface ExportProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly view: View;
  readonly format: ExportFormat;
  /** The number of items, or null if it is unknown. */
  readonly count: number | null;
  readonly onClose: () => void;
}

/** Begins at once and closes when the file is complete. Closing it cancels the export. */
export function ExportDialog({ collection, model, view, format, count, onClose }: ExportProps): JSX.Element {
  const [bytes, setBytes] = useState(0);
  const [error, setError] = useState<string | null>(null);
  const request = useRef(new AbortController());
  const run = (): void => {
    setError(null);
    setBytes(0);
    const path = `/utils/export/${encodeURIComponent(collection.name)}`;
    const { deep: _, ...query } = queryOf(view, model);
    const body = { format, query: { ...query, fields: exportedFields(view, collection), limit: -1 } };
    download({ path, body, name: `${collection.name}.${format}` }, setBytes, request.current.signal).then(
      () => {
        toast(`Exported to ${collection.name}.${format}`);
        onClose();
      },
      (failure: unknown) => {
        if (!request.current.signal.aborted) setError(messageOf(failure));
      },
    );
  };
  useEffect(() => {
    run();
    return () => request.current.abort();
  }, []);
  return (
    <Dialog
      title={`Export ${collection.name}`}
      onClose={onClose}
      isForm
      footer={<Button label="Cancel" onClick={onClose} />}
    >
      {error ? (
        <ErrorBox text={`Not exported: ${error}`} onRetry={run} />
      ) : (
        <label class="progress">
          {count === null ? 'Items' : `${describeCount(count)} items`} as {format.toUpperCase()}: {sizeText(bytes)}{' '}
          received
          <progress aria-label="Export" />
        </label>
      )}
    </Dialog>
  );
}

function sizeText(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** A file contains the fields that an import accepts: keys of related items. */
function exportedFields(view: View, collection: Collection): string[] {
  return view.columns.filter((name) => collection.fields.get(name)?.column);
}
