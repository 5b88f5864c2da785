/** What the property tests share: PROPERTY_SEED, PROPERTY_CASES, and a database with the service's tables that each model is copied from. */
import t from 'tap';
import { createDatabase, startDatabase, startTestService } from './service.js';

export async function prepareProperty(defaults: { readonly seed: string; readonly cases: number }) {
  const cases = Number(process.env['PROPERTY_CASES'] ?? defaults.cases);
  const text = process.env['PROPERTY_SEED'] ?? defaults.seed;
  const seed = text === 'random' ? Math.floor(Math.random() * 2_000_000_000) : Number(text);
  t.comment(`PROPERTY_SEED=${seed} PROPERTY_CASES=${cases}`);
  t.setTimeout(120_000 + cases * 500);
  const server = await startDatabase();
  const template = await createDatabase(server, 'template_of_models');
  await (await startTestService({ databaseUrl: template })).stop();
  return { cases, seed, server, counts: new Map<string, number>() };
}
