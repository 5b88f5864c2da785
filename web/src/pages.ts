/** The list of pages. Each is loaded when it is first opened. */
import type { ComponentType } from 'preact';
import { mayAdminister, me, model } from './state';

export interface Page {
  readonly name: string;
  readonly title: string;
  /** Pages of a group are in one menu of the navigation. */
  readonly group?: 'Operations';
  /** Whether only administrators see it. */
  readonly administrators?: boolean;
  /** Whether it depends on permissions, so that administrators can view it as another caller. */
  readonly isViewed?: boolean;
  /** The system collection that the caller must be able to read, without its prefix. */
  readonly collection?: string;
  readonly load: () => Promise<ComponentType>;
}

export const pages: readonly Page[] = [
  { name: 'data', title: 'Data', load: () => import('./data/page').then((loaded) => loaded.DataPage) },
  { name: 'query', title: 'Query', load: () => import('./query/page').then((loaded) => loaded.QueryPage) },
  {
    name: 'plan',
    title: 'Plan',
    group: 'Operations',
    administrators: true,
    isViewed: true,
    load: () => import('./plan/page').then((loaded) => loaded.PlanPage),
  },
  { name: 'boards', title: 'Boards', load: () => import('./boards/page').then((loaded) => loaded.BoardsPage) },
  {
    name: 'files',
    title: 'Files',
    collection: 'files',
    load: () => import('./files/page').then((loaded) => loaded.FilesPage),
  },
  { name: 'model', title: 'Model', load: () => import('./schema/page').then((loaded) => loaded.ModelPage) },
  {
    name: 'access',
    title: 'Access',
    administrators: true,
    load: () => import('./access/page').then((loaded) => loaded.AccessPage),
  },
  {
    name: 'people',
    title: 'People',
    administrators: true,
    load: () => import('./people/page').then((loaded) => loaded.PeoplePage),
  },
  {
    name: 'webhooks',
    title: 'Webhooks',
    group: 'Operations',
    administrators: true,
    load: () => import('./webhooks/page').then((loaded) => loaded.WebhooksPage),
  },
  {
    name: 'capacity',
    title: 'Capacity',
    group: 'Operations',
    administrators: true,
    load: () => import('./capacity/page').then((loaded) => loaded.CapacityPage),
  },
  {
    name: 'pulse',
    title: 'Pulse',
    group: 'Operations',
    administrators: true,
    load: () => import('./pulse/page').then((loaded) => loaded.PulsePage),
  },
  { name: 'docs', title: 'Docs', load: () => import('./docs/page').then((loaded) => loaded.DocsPage) },
];

export function shownPages(): readonly Page[] {
  return pages.filter(
    ({ administrators, isViewed, collection }) =>
      (!administrators || mayAdminister.value || (isViewed && me.value?.administrator)) &&
      (collection === undefined || mayRead(collection)),
  );
}

/** True until the schema is known. */
function mayRead(collection: string): boolean {
  const known = model.value;
  return known === null || known.has(`service_${collection}`) || known.has(`directus_${collection}`);
}
