/** The statistics of statements and their budgets, in one serving thread. */
import { labelled, type Metric } from '../../server/api/server/metric.js';
import type { ShapeReport, ShapeStats } from '../../server/batching/shape-stats.js';
import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import { applyBudgets, budgetRoutes, loadBudgets } from './shape-budgets.js';
import { digestOfShape, shapesRoutes } from './shape-routes.js';

export async function openShapes({ core, identities, ask, broadcast }: FeatureContext): Promise<FeaturePart> {
  const { database, reads } = core;
  const { shapeStats } = reads;
  const load = async (): Promise<void> => applyBudgets(await loadBudgets(database), shapeStats);
  await load();
  const shapes = async (): Promise<readonly ShapeReport[]> => ((await ask('reports')) as ShapeReport[][]).flat();
  const services = { identities, database, shapeStats, shapes };
  return {
    routes: [
      ...shapesRoutes(services),
      ...budgetRoutes({ ...services, apply: broadcast, digestOf: (id) => digestOfShape(id, services) }),
    ],
    metrics: () => [budgetMetric(shapeStats)],
    onQuestion: () => shapeStats.reports,
    onBroadcast: (text) => applyBudgets(text, shapeStats),
    onReload: () => void load().catch(() => {}),
  };
}

function budgetMetric({ budgets }: ShapeStats): Metric {
  const values = [...budgets].map(([shape, { exceeded }]) => ({ labels: { shape }, value: exceeded }));
  const help = 'Statements that took longer than the budget of their shape.';
  return labelled('counter', 'lateral_shape_budget_exceeded_total', help, values);
}
