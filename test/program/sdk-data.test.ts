/** Every command of the family's SDK for what applications keep beside the collections: one and many, made, read, changed and deleted. */
import {
  createComment,
  createComments,
  createDashboard,
  createDashboards,
  createDirectus,
  createFolder,
  createFolders,
  createNotification,
  createNotifications,
  createPanel,
  createPanels,
  createPreset,
  createPresets,
  createTranslation,
  createTranslations,
  deleteComment,
  deleteComments,
  deleteDashboard,
  deleteDashboards,
  deleteFolder,
  deleteFolders,
  deleteNotification,
  deleteNotifications,
  deletePanel,
  deletePanels,
  deletePreset,
  deletePresets,
  deleteTranslation,
  deleteTranslations,
  graphql,
  type RestCommand,
  readComment,
  readComments,
  readDashboard,
  readDashboards,
  readFolder,
  readFolders,
  readNotification,
  readNotifications,
  readPanel,
  readPanels,
  readPreset,
  readPresets,
  readTranslation,
  readTranslations,
  rest,
  staticToken,
  updateComment,
  updateComments,
  updateCommentsBatch,
  updateDashboard,
  updateDashboards,
  updateDashboardsBatch,
  updateFolder,
  updateFolders,
  updateFoldersBatch,
  updateNotification,
  updateNotifications,
  updateNotificationsBatch,
  updatePanel,
  updatePanels,
  updatePanelsBatch,
  updatePreset,
  updatePresets,
  updatePresetsBatch,
  updateTranslation,
  updateTranslations,
  updateTranslationsBatch,
} from '@directus/sdk';
import t from 'tap';
import { makeCaller } from '../support/callers.js';
import { ADMIN_TOKEN, connectSql, createLibrary, startDatabase, startTestService } from '../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'sdk_data');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const { user } = await makeCaller(sql, 'reader', [{ app_access: true }]);
const [administrator] = await sql<{ id: string }[]>`select id from service_users where email = 'admin@example.com'`;
const service = await startTestService({ databaseUrl });
const client = createDirectus(service.url).with(staticToken(ADMIN_TOKEN)).with(rest()).with(graphql());
const ask = (command: unknown): Promise<unknown> => client.request(command as RestCommand<unknown, object>);

type Row = Readonly<Record<string, unknown>>;
type Key = string & number;

/** The commands differ in their names alone; what they take is typed by the SDK's own schema, which this test need not repeat. */
interface Commands {
  readonly path: string;
  readonly create: (item: Row, query?: object) => unknown;
  readonly createMany: (items: Row[], query?: object) => unknown;
  readonly read: (key: Key, query?: object) => unknown;
  readonly readMany: (query?: object) => unknown;
  readonly update: (key: Key, item: Row, query?: object) => unknown;
  readonly updateMany: (keys: Key[], item: Row, query?: object) => unknown;
  readonly updateBatch: (items: Row[], query?: object) => unknown;
  readonly remove: (key: Key) => unknown;
  readonly removeMany: (keys: Key[]) => unknown;
  readonly samples: readonly [Row, Row, Row];
  readonly changed: Row;
  /** What the service fills in. */
  readonly filled: Row;
}

const [dashboard] = await sql<
  { id: string }[]
>`insert into service_dashboards (name) values ('Of panels') returning id`;
const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const panel = { dashboard: dashboard?.id, type: 'metric', position_x: 1, position_y: 1, width: 6, height: 6 };
const made = { date_created: isTime, user_created: administrator?.id };

const RESOURCES: readonly Commands[] = [
  {
    path: 'presets',
    create: createPreset,
    createMany: createPresets,
    read: readPreset,
    readMany: readPresets,
    update: updatePreset,
    updateMany: updatePresets,
    updateBatch: updatePresetsBatch,
    remove: deletePreset,
    removeMany: deletePresets,
    samples: [
      { collection: 'articles', bookmark: 'One', layout_query: { tabular: { sort: ['title'] } } },
      { collection: 'articles', user },
      { collection: 'tags', filter: { name: { _eq: 'x' } } },
    ],
    changed: { search: 'found' },
    filled: { layout: 'tabular', icon: 'bookmark', user: null, role: null },
  },
  {
    path: 'comments',
    create: createComment,
    createMany: createComments,
    read: readComment,
    readMany: readComments,
    update: updateComment,
    updateMany: updateComments,
    updateBatch: updateCommentsBatch,
    remove: deleteComment,
    removeMany: deleteComments,
    samples: [
      { collection: 'articles', item: 1, comment: 'First' },
      { collection: 'articles', item: '1', comment: 'Second' },
      { collection: 'tags', item: '404', comment: 'On nothing: administrators may' },
    ],
    changed: { comment: 'Changed' },
    filled: { ...made, item: '1', date_updated: null, user_updated: null },
  },
  {
    path: 'notifications',
    create: createNotification,
    createMany: createNotifications,
    read: readNotification,
    readMany: readNotifications,
    update: updateNotification,
    updateMany: updateNotifications,
    updateBatch: updateNotificationsBatch,
    remove: deleteNotification,
    removeMany: deleteNotifications,
    samples: [
      { recipient: user, subject: 'One', message: '**Read** this', collection: 'articles', item: '1' },
      { recipient: user, subject: 'Two', sender: administrator?.id },
      { recipient: administrator?.id, subject: 'Three' },
    ],
    changed: { status: 'archived' },
    filled: { status: 'inbox', timestamp: isTime, sender: null },
  },
  {
    path: 'translations',
    create: createTranslation,
    createMany: createTranslations,
    read: readTranslation,
    readMany: readTranslations,
    update: updateTranslation,
    updateMany: updateTranslations,
    updateBatch: updateTranslationsBatch,
    remove: deleteTranslation,
    removeMany: deleteTranslations,
    samples: [
      { key: 'save', language: 'de-DE', value: 'Sichern' },
      { key: 'save', language: 'en-US', value: 'Save' },
      { key: 'stop', language: 'de-DE', value: 'Halt' },
    ],
    changed: { value: 'Changed' },
    filled: { id: /^[0-9a-f-]{36}$/ },
  },
  {
    path: 'folders',
    create: createFolder,
    createMany: createFolders,
    read: readFolder,
    readMany: readFolders,
    update: updateFolder,
    updateMany: updateFolders,
    updateBatch: updateFoldersBatch,
    remove: deleteFolder,
    removeMany: deleteFolders,
    samples: [{ name: 'One' }, { name: 'Two', parent: { name: 'Above' } }, { name: 'Three' }],
    changed: { name: 'Changed' },
    filled: { parent: null, type: 'files' },
  },
  {
    path: 'dashboards',
    create: createDashboard,
    createMany: createDashboards,
    read: readDashboard,
    readMany: readDashboards,
    update: updateDashboard,
    updateMany: updateDashboards,
    updateBatch: updateDashboardsBatch,
    remove: deleteDashboard,
    removeMany: deleteDashboards,
    samples: [{ name: 'One' }, { name: 'Two', panels: [{ ...panel, dashboard: undefined }] }, { name: 'Three' }],
    changed: { note: 'Changed' },
    filled: { ...made, icon: 'dashboard', panels: [] },
  },
  {
    path: 'panels',
    create: createPanel,
    createMany: createPanels,
    read: readPanel,
    readMany: readPanels,
    update: updatePanel,
    updateMany: updatePanels,
    updateBatch: updatePanelsBatch,
    remove: deletePanel,
    removeMany: deletePanels,
    samples: [{ ...panel, options: { field: 'views' } }, { ...panel, name: 'Two' }, panel],
    changed: { position_x: 20 },
    filled: { ...made, show_header: false },
  },
];

for (const commands of RESOURCES)
  t.test(commands.path, async (t) => {
    const { samples, changed, filled } = commands;
    const [one, two, three] = samples;
    const first = (await ask(commands.create(one))) as Row & { id: Key };
    t.match(first, { ...comparable(one), ...filled });
    const more = (await ask(commands.createMany([two, three], { fields: ['id'] }))) as { id: Key }[];
    const [second, third] = more.map(({ id }) => id) as [Key, Key];
    const keys = [first.id, second, third];
    t.match(await ask(commands.read(first.id)), { ...comparable(one), ...filled });
    t.match(await ask(commands.read(first.id, { fields: ['id'] })), { id: first.id });
    const list = { filter: { id: { _in: keys } }, sort: ['-id'], fields: ['id'] };
    t.strictSame(
      await ask(commands.readMany(list)),
      [...keys].sort(descending).map((id) => ({ id })),
    );
    t.match(await ask(commands.update(first.id, changed)), { id: first.id, ...changed });
    t.match(await ask(commands.updateMany([first.id, second], changed, { fields: ['*'] })), [changed, changed]);
    t.match(await ask(commands.updateBatch([{ id: third, ...changed }])), [{ id: third, ...changed }]);
    await ask(commands.remove(first.id));
    await t.rejects(ask(commands.read(first.id)), { errors: [{ extensions: { code: 'FORBIDDEN' } }] });
    await ask(commands.removeMany([second, third]));
    t.strictSame(await ask(commands.readMany(list)), []);
  });

t.test('the system schema of GraphQL has the same', async (t) => {
  const created = await client.query<Record<string, unknown>>(
    `mutation {
      create_dashboards_item(data: { name: "G", panels: [{ type: "list", position_x: 1, position_y: 1, width: 2, height: 2 }] }) { id panels { type } }
      create_presets_items(data: [{ bookmark: "G", filter: { a: 1 } }]) { id filter }
    }`,
    {},
    'system',
  );
  t.match(created, {
    create_dashboards_item: { panels: [{ type: 'list' }] },
    create_presets_items: [{ filter: { a: 1 } }],
  });
  const { id } = created['create_dashboards_item'] as { id: string };
  const read = await client.query(
    `{ dashboards_by_id(id: "${id}") { name user_created { email } }
       presets(filter: { bookmark: { _eq: "G" } }) { icon user { id } }
       panels_aggregated(filter: { dashboard: { id: { _eq: "${id}" } } }) { countAll } comments { id } notifications { id } translations { id } folders { id } }`,
    {},
    'system',
  );
  t.match(read, {
    dashboards_by_id: { name: 'G', user_created: { email: 'admin@example.com' } },
    presets: [{ icon: 'bookmark', user: null }],
    panels_aggregated: [{ countAll: 1 }],
  });
  const gone = await client.query(`mutation { delete_dashboards_item(id: "${id}") { id } }`, {}, 'system');
  t.strictSame(gone, { delete_dashboards_item: { id } });
  t.strictSame(await client.query(`{ panels(filter: { type: { _eq: "list" } }) { id } }`, {}, 'system'), {
    panels: [],
  });
});

/** Keys of items and references are shown as their columns hold them. */
function comparable({ item, panels: _, ...row }: Row): Row {
  return item === undefined ? row : { ...row, item: String(item) };
}

function descending(one: Key, other: Key): number {
  return one < other ? 1 : -1;
}
