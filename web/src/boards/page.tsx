/** Boards: several charts on a page. Each chart reads with the rights of the viewer. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, messageOf } from '../api';
import { fromQueryJson } from '../query/query';
import { addressOf } from '../query/session';
import { go, href, mayAdminister, me, model as modelSignal, route, toast } from '../state';
import { Button, copyText, countOf, Empty, ErrorBox, Menu } from '../ui';
import { BoardForm, DeleteDialog } from './board-form';
import {
  arrange,
  type Board,
  type BoardEntry,
  deleteBoard,
  deletePanel,
  HEIGHTS,
  listBoards,
  loadBoard,
  mayChangeBoards,
  type Panel,
  WIDTHS,
} from './boards';
import './boards.css';
import { PanelView } from './panel';
import { firstDrawn, PanelForm } from './panel-form';
import { PublicAccess } from './public-access';

export function BoardsPage(): JSX.Element {
  const [id] = route.value.rest;
  const [mayChange, setMayChange] = useState(false);
  useEffect(() => {
    mayChangeBoards().then(setMayChange, () => {});
  }, []);
  return id === undefined || id === '' ? (
    <BoardList mayChange={mayChange} />
  ) : (
    <BoardView key={id} id={id} mayChange={mayChange} />
  );
}

function BoardList({ mayChange }: { readonly mayChange: boolean }): JSX.Element {
  const [boards, setBoards] = useState<readonly BoardEntry[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [isNew, setNew] = useState(false);
  const read = (): void => {
    setError(null);
    listBoards().then(setBoards, (failure: unknown) => setError(refusal(failure)));
  };
  useEffect(read, []);
  return (
    <div class="boards">
      <header class="toolbar">
        <h1>Boards</h1>
        <span class="grow" />
        {mayChange && <Button label="New board" icon="plus" kind="primary" onClick={() => setNew(true)} />}
      </header>
      {error && <ErrorBox text={error} onRetry={read} />}
      {!boards && !error && <p class="boot">Loading…</p>}
      {boards?.length === 0 && (
        <Empty title="There are no boards yet" icon="columns">
          {mayChange
            ? 'A board shows charts of your data: counts, sums and averages, by group or over time. Press New board to begin.'
            : 'No board exists, or you may not read any.'}
        </Empty>
      )}
      {boards && boards.length > 0 && (
        <ul class="board-list">
          {boards.map(({ id, name, note, count }) => (
            <li key={id}>
              <a href={href('boards', [id])}>
                <strong>{name}</strong>
                {note && <span class="quiet">{note}</span>}
                <small>{countOf(count, 'chart')}</small>
              </a>
            </li>
          ))}
        </ul>
      )}
      {isNew && <BoardForm board={null} onClose={() => setNew(false)} onSaved={(id) => go(href('boards', [id]))} />}
    </div>
  );
}

function refusal(failure: unknown): string {
  if (failure instanceof ApiError && failure.status === 403)
    return 'You may not read boards. They need the permission to read dashboards and panels (Access).';
  return messageOf(failure);
}

/** The service answers the same whether a board does not exist or may not be read. */
function refusalOfOne(failure: unknown): string {
  const isRefused = failure instanceof ApiError && failure.status === 403;
  return isRefused && me.value ? 'The board was deleted, or you may not read it.' : refusal(failure);
}

type Opened =
  | { readonly kind: 'add' | 'rename' | 'delete' | 'public' }
  | { readonly kind: 'edit' | 'remove'; readonly panel: Panel };

interface BoardViewProps {
  readonly id: string;
  readonly mayChange: boolean;
  /** The board of the public has no links to other pages. */
  readonly isPublic?: boolean;
}

export function BoardView({ id, mayChange, isPublic = false }: BoardViewProps): JSX.Element {
  const [board, setBoard] = useState<Board | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const [isArranging, setArranging] = useState(false);
  const [opened, setOpened] = useState<Opened | null>(null);
  const whole = useRef<HTMLDivElement>(null);
  const read = (): void => {
    loadBoard(id).then(
      (loaded) => {
        setBoard(loaded);
        setError(null);
      },
      (failure: unknown) => setError(refusalOfOne(failure)),
    );
  };
  useEffect(read, [id]);
  useEffect(() => {
    if (board) document.title = `${board.name} · Lateral`;
  }, [board]);
  const move = (panels: readonly Panel[]): void => {
    if (!board) return;
    setBoard({ ...board, panels });
    arrange(panels).catch((failure: unknown) => {
      toast(messageOf(failure), 'bad');
      read();
    });
  };
  if (error)
    return (
      <div class="page-pad">
        <ErrorBox text={error} onRetry={read} />
        {!isPublic && <a href={href('boards')}>All boards</a>}
      </div>
    );
  if (!board) return <p class="boot">Loading…</p>;
  return (
    <div class="boards board" ref={whole}>
      <header class="toolbar">
        {!isPublic && (
          <nav aria-label="Path">
            <a href={href('boards')}>Boards</a> /
          </nav>
        )}
        <h1>{board.name}</h1>
        {board.note && <span class="quiet">{board.note}</span>}
        <div class="actions">
          <Button label="Refresh" icon="refresh" onClick={() => setTurn(turn + 1)} />
          <Button label="Full screen" icon="expand" onClick={() => void showAll(whole.current)} />
          {mayChange && (
            <Commands
              board={board}
              isArranging={isArranging}
              onArrange={() => setArranging(!isArranging)}
              onOpen={(kind) => setOpened({ kind })}
            />
          )}
        </div>
      </header>
      {board.panels.length === 0 && (
        <Empty title="The board has no charts yet" icon="columns">
          {mayChange ? 'Use Add chart here, or Add to board in Query.' : 'Nobody has added one.'}
        </Empty>
      )}
      <div class="board-grid">
        {board.panels.map((panel, at) => (
          <article
            key={panel.id}
            class="board-panel"
            aria-label={panel.title}
            style={{ '--columns': panel.width, '--rows': panel.height }}
          >
            <PanelContent {...{ panel, turn, mayChange, isPublic }} onOpen={(kind) => setOpened({ kind, panel })} />
            {isArranging && <Arranging panels={board.panels} at={at} onMove={move} />}
          </article>
        ))}
      </div>
      {opened && (
        <BoardDialogs
          board={board}
          opened={opened}
          onClose={() => setOpened(null)}
          onChanged={() => {
            setOpened(null);
            read();
          }}
        />
      )}
    </div>
  );
}

interface CommandsProps {
  readonly board: Board;
  readonly isArranging: boolean;
  readonly onArrange: () => void;
  readonly onOpen: (kind: 'add' | 'rename' | 'delete' | 'public') => void;
}

function Commands({ board, isArranging, onArrange, onOpen }: CommandsProps): JSX.Element {
  const forAll = { label: 'Access without login', icon: 'user' as const, onClick: () => onOpen('public') };
  return (
    <>
      <Button
        label="Arrange"
        icon="columns"
        pressed={isArranging}
        disabled={board.panels.length === 0}
        onClick={onArrange}
      />
      <Menu
        label="More"
        icon="more"
        compact
        entries={[
          { label: 'Rename', icon: 'edit', onClick: () => onOpen('rename') },
          { label: 'Copy link', icon: 'link', onClick: () => void copyText(location.href, 'Link copied') },
          ...(mayAdminister.value ? [forAll] : []),
          { label: 'Delete the board', icon: 'trash', danger: true, onClick: () => onOpen('delete') },
        ]}
      />
      <Button label="Add chart" icon="plus" kind="primary" onClick={() => onOpen('add')} />
    </>
  );
}

interface ContentProps extends PanelMenuProps {
  readonly turn: number;
  readonly isPublic: boolean;
}

function PanelContent({ turn, isPublic, ...menu }: ContentProps): JSX.Element {
  const { panel } = menu;
  if (panel.unknown !== null) return <p class="quiet">Panels of the type {panel.unknown} cannot be shown here.</p>;
  return <PanelView drawn={panel} turn={turn} more={!isPublic && <PanelMenu {...menu} />} />;
}

async function showAll(element: HTMLElement | null): Promise<void> {
  try {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await element?.requestFullscreen();
  } catch {
    toast('The browser does not allow full screen here', 'bad');
  }
}

interface PanelMenuProps {
  readonly panel: Panel;
  readonly mayChange: boolean;
  readonly onOpen: (kind: 'edit' | 'remove') => void;
}

function PanelMenu({ panel, mayChange, onOpen }: PanelMenuProps): JSX.Element {
  const model = modelSignal.value;
  return (
    <Menu
      label={`More about ${panel.title}`}
      icon="more"
      kind="quiet"
      compact
      entries={[
        ...(model?.has(panel.collection)
          ? [
              {
                label: 'Open in Query',
                icon: 'code' as const,
                onClick: () => go(addressOf(fromQueryJson(panel.collection, panel.query, model))),
              },
            ]
          : []),
        ...(mayChange
          ? [
              { label: 'Edit', icon: 'edit' as const, onClick: () => onOpen('edit') },
              { label: 'Delete', icon: 'trash' as const, danger: true, onClick: () => onOpen('remove') },
            ]
          : []),
      ]}
    />
  );
}

interface ArrangingProps {
  readonly panels: readonly Panel[];
  readonly at: number;
  readonly onMove: (panels: readonly Panel[]) => void;
}

/** Moves a chart before or behind its neighbour, and changes its size. */
function Arranging({ panels, at, onMove }: ArrangingProps): JSX.Element {
  const panel = panels[at] as Panel;
  const swap = (to: number): void => {
    const other = panels[to];
    if (other) onMove(panels.with(to, panel).with(at, other));
  };
  const resize = (size: Partial<Pick<Panel, 'width' | 'height'>>): void =>
    onMove(panels.with(at, { ...panel, ...size }));
  const options = (among: readonly (readonly [number, string])[], value: number) =>
    among.some(([each]) => each === value) ? among : [[value, String(value)] as const, ...among];
  return (
    <footer class="board-arranging">
      <Button label={`Move ${panel.title} back`} icon="left" compact disabled={at === 0} onClick={() => swap(at - 1)} />
      <Button
        label={`Move ${panel.title} forward`}
        icon="right"
        compact
        disabled={at === panels.length - 1}
        onClick={() => swap(at + 1)}
      />
      <select
        aria-label={`Width of ${panel.title}`}
        value={panel.width}
        onChange={(event) => resize({ width: Number(event.currentTarget.value) })}
      >
        {options(WIDTHS, panel.width).map(([width, label]) => (
          <option key={width} value={width}>
            {label}
          </option>
        ))}
      </select>
      <select
        aria-label={`Height of ${panel.title}`}
        value={panel.height}
        onChange={(event) => resize({ height: Number(event.currentTarget.value) })}
      >
        {options(HEIGHTS, panel.height).map(([height, label]) => (
          <option key={height} value={height}>
            {label}
          </option>
        ))}
      </select>
    </footer>
  );
}

interface DialogsProps {
  readonly board: Board;
  readonly opened: Opened;
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

function BoardDialogs({ board, opened, onClose, onChanged }: DialogsProps): JSX.Element {
  const [first] = [...(modelSignal.value?.values() ?? [])].filter(({ system }) => !system);
  switch (opened.kind) {
    case 'rename':
      return <BoardForm board={board} onClose={onClose} onSaved={onChanged} />;
    case 'public':
      return <PublicAccess board={board} onClose={onClose} />;
    case 'delete':
      return (
        <DeleteDialog
          title="Delete the board"
          text={`The board "${board.name}" and its ${countOf(board.panels.length, 'chart')} will be deleted.`}
          onClose={onClose}
          onDelete={async () => {
            await deleteBoard(board.id);
            go(href('boards'));
          }}
        />
      );
    case 'remove':
      return (
        <DeleteDialog
          title="Delete the chart"
          text={`The chart "${opened.panel.title}" will be deleted. Its data stays.`}
          onClose={onClose}
          onDelete={async () => {
            await deletePanel(opened.panel.id);
            onChanged();
          }}
        />
      );
    default:
      return (
        <PanelForm
          drawn={opened.kind === 'edit' ? opened.panel : firstDrawn(first?.name ?? '')}
          panel={opened.kind === 'edit' ? opened.panel.id : null}
          board={board.id}
          onClose={onClose}
          onSaved={onChanged}
        />
      );
  }
}
