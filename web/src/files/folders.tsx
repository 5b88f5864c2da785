/** Folders as a tree: choose one, create, rename, move, delete. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../api';
import { Confirm, SaveDialog, Select, TextInput } from '../forms';
import { go, href } from '../state';
import { Button, Icon, Menu } from '../ui';
import { type Folder, folderOptions, folderTree } from './files';

interface FoldersProps {
  readonly folders: readonly Folder[];
  /** `all`, `none` or the id of a folder. */
  readonly chosen: string;
  readonly mayChange: boolean;
  readonly onChanged: () => Promise<void>;
  /** Files that are dropped on a folder are uploaded there. */
  readonly onDropped: (files: Iterable<File>, folder: string | null) => void;
}

type Open =
  | { readonly kind: 'form'; readonly folder: Folder | null; readonly parent: string }
  | { readonly kind: 'delete'; readonly folder: Folder }
  | null;

export function Folders({ folders, chosen, mayChange, onChanged, onDropped }: FoldersProps): JSX.Element {
  const [open, setOpen] = useState<Open>(null);
  const current = folders.find(({ id }) => id === chosen);
  return (
    <aside class="folders" aria-label="Folders">
      <nav aria-label="Folders">
        <FolderLink id="all" name="All files" chosen={chosen} depth={0} />
        <FolderLink id="none" name="Without a folder" chosen={chosen} depth={0} onDropped={onDropped} />
        {folderTree(folders).map(({ folder, depth }) => (
          <FolderLink
            key={folder.id}
            id={folder.id}
            name={folder.name}
            chosen={chosen}
            depth={depth}
            onDropped={onDropped}
          />
        ))}
      </nav>
      {mayChange && (
        <div class="row folders-foot">
          <Button
            label="New folder"
            icon="plus"
            onClick={() => setOpen({ kind: 'form', folder: null, parent: current?.id ?? '' })}
          />
          {current && (
            <Menu
              label={`Actions of ${current.name}`}
              icon="more"
              compact
              entries={[
                {
                  label: 'Rename or move',
                  onClick: () => setOpen({ kind: 'form', folder: current, parent: current.parent ?? '' }),
                },
                {
                  label: 'Delete folder',
                  icon: 'trash',
                  danger: true,
                  onClick: () => setOpen({ kind: 'delete', folder: current }),
                },
              ]}
            />
          )}
        </div>
      )}
      {open?.kind === 'form' && (
        <FolderForm {...open} folders={folders} onClose={() => setOpen(null)} onChanged={onChanged} />
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={`Delete the folder ${open.folder.name}?`}
          submit="Delete"
          onClose={() => setOpen(null)}
          onConfirm={async () => {
            await call('DELETE', `/folders/${open.folder.id}`);
            await onChanged();
            go(href('files'));
            return `The folder ${open.folder.name} was deleted`;
          }}
        >
          <p>Its files stay, without a folder. A folder that contains folders cannot be deleted.</p>
        </Confirm>
      )}
    </aside>
  );
}

interface LinkProps {
  readonly id: string;
  readonly name: string;
  readonly chosen: string;
  readonly depth: number;
  readonly onDropped?: FoldersProps['onDropped'];
}

function FolderLink({ id, name, chosen, depth, onDropped }: LinkProps): JSX.Element {
  return (
    <a
      class={`depth-${Math.min(depth, 6)}`}
      href={href('files', id === 'all' ? [] : [id])}
      aria-current={chosen === id ? 'page' : undefined}
      onDragOver={(event) => onDropped && event.preventDefault()}
      onDrop={(event) => {
        if (!onDropped || !event.dataTransfer) return;
        event.preventDefault();
        event.stopPropagation();
        onDropped(event.dataTransfer.files, id === 'none' ? null : id);
      }}
    >
      <Icon name="folder" />
      <span>{name}</span>
    </a>
  );
}

interface FormProps {
  /** The folder, or null if it is new. */
  readonly folder: Folder | null;
  readonly parent: string;
  readonly folders: readonly Folder[];
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
}

function FolderForm({ folder, parent: given, folders, onClose, onChanged }: FormProps): JSX.Element {
  const [name, setName] = useState(folder?.name ?? '');
  const [parent, setParent] = useState(given);
  const save = async (): Promise<string> => {
    const body = { name: name.trim(), parent: parent === '' ? null : parent };
    if (folder) await call('PATCH', `/folders/${folder.id}?fields=id`, { body });
    else {
      const { data } = await call<{ id: string }>('POST', '/folders?fields=id', { body });
      go(href('files', [data.id]));
    }
    await onChanged();
    return `The folder ${body.name} was ${folder ? 'saved' : 'created'}`;
  };
  return (
    <SaveDialog
      title={folder ? `Folder ${folder.name}` : 'New folder'}
      submit={folder ? 'Save' : 'Create'}
      disabled={name.trim() === ''}
      onClose={onClose}
      onSave={save}
    >
      <TextInput id="folder-name" label="Name" value={name} onInput={setName} />
      <Select
        id="folder-parent"
        label="Inside"
        value={parent}
        options={folderOptions(folders, folder?.id ?? null)}
        onChange={setParent}
      />
    </SaveDialog>
  );
}
