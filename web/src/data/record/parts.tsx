/** The parts of an item's page: its tabs, and the dialogs that it opens. */
import type { JSX } from 'preact';
import { call, itemsPath, messageOf } from '../../api';
import type { Collection, Model } from '../../model';
import { go, mayAdminister, toast } from '../../state';
import { forgetCounts } from '../collections';
import { DeleteDialog } from '../delete';
import { deletionOf, type Edits, type Key, keyColumns, type Row } from '../edits';
import { addressOfList, addressOfRecord } from './address';
import { Comments } from './comments';
import { RecordFields } from './fields';
import { RequestDialog } from './request';
import { Revisions } from './revisions';
import { type Version, type VersionList, Versions } from './versions';
import { Viewers } from './viewers';

const TABS = [
  ['fields', 'Fields'],
  ['revisions', 'Revisions'],
  ['comments', 'Comments'],
  ['versions', 'Versions'],
  ['access', 'Readers'],
] as const;

export type Tab = (typeof TABS)[number][0];

export function tabsOf(collection: Collection): readonly (readonly [Tab, string])[] {
  const mayComment = collection.keys.length > 0 && !collection.system;
  return TABS.filter(([name]) => {
    if (name === 'fields') return true;
    if (name === 'access') return mayAdminister.value && !collection.system;
    if (name === 'revisions') return collection.hasRevisions;
    return mayComment && !collection.singleton;
  });
}

interface TabsProps {
  readonly collection: Collection;
  readonly itemKey: string;
  /** The key of the chosen version, or empty for the item itself. */
  readonly chosen: string;
  readonly tab: Tab;
}

export function Tabs({ collection, itemKey, chosen, tab }: TabsProps): JSX.Element {
  const addressOf = (name: Tab): string =>
    addressOfRecord(collection.name, itemKey, { tab: name === 'fields' ? '' : name, version: chosen });
  return (
    <nav class="tabs record-tabs" aria-label="Parts of the item">
      {tabsOf(collection).map(([name, label]) => (
        <a key={name} href={addressOf(name)} aria-current={tab === name ? 'page' : undefined}>
          {label}
        </a>
      ))}
    </nav>
  );
}

interface PartProps extends TabsProps {
  readonly model: Model;
  readonly row: Row;
  readonly rowKey: Key;
  readonly versions: VersionList;
  readonly edits: Edits | null;
  readonly wrong: Readonly<Record<string, string>>;
  readonly onWrong: (wrong: Readonly<Record<string, string>>) => void;
  /** Grows with each reload. */
  readonly reloads: number;
  readonly onChanged: () => void;
}

/** The content of the chosen tab. */
export function Part(props: PartProps): JSX.Element {
  const { collection, model, itemKey, row, rowKey, versions, edits, reloads, onChanged } = props;
  switch (props.tab) {
    case 'revisions':
      return <Revisions {...{ collection, model, row, itemKey, reloads }} onRestored={onChanged} />;
    case 'comments':
      return <Comments collection={collection} itemKey={itemKey} />;
    case 'versions':
      return <Versions collection={collection} itemKey={itemKey} versions={versions} onPromoted={onChanged} />;
    case 'access':
      return <Viewers collection={collection} keyValues={keyColumns(rowKey, collection.keys)} />;
    default:
      return (
        <RecordFields
          {...{ collection, model, row, edits, reloads }}
          path={[rowKey]}
          wrong={props.wrong}
          onWrong={props.onWrong}
          version={props.chosen}
        />
      );
  }
}

export type OpenDialog = 'request' | 'delete' | null;

interface DialogsProps {
  readonly open: OpenDialog;
  readonly collection: Collection;
  readonly model: Model;
  readonly itemKey: string;
  readonly rowKey: Key;
  readonly edits: Edits | null;
  readonly version: Version | null;
  readonly onClose: () => void;
}

export function Dialogs({ open, rowKey, ...props }: DialogsProps): JSX.Element | null {
  const { collection, onClose } = props;
  const remove = async (): Promise<void> => {
    onClose();
    try {
      await call('DELETE', itemsPath(collection.name), { body: deletionOf([rowKey], collection.keys) });
      props.edits?.forgetItems([rowKey]);
      toast('One item deleted');
      forgetCounts(collection.name);
      go(addressOfList(collection.name));
    } catch (failure) {
      toast(`Not deleted: ${messageOf(failure)}`, 'bad');
    }
  };
  if (open === 'request') return <RequestDialog {...props} />;
  if (open === null) return null;
  return <DeleteDialog collection={collection} keys={[rowKey]} onClose={onClose} onDelete={() => void remove()} />;
}
