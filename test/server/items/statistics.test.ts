/** What statistics of PostgreSQL say of values: known, rare or unknown, by hand-made tables. */
import t from 'tap';
import { type ColumnStatisticsEntry, TableStatistics } from '../../../src/speed/plan-choices/column-statistics.js';

function column(...entry: ColumnStatisticsEntry) {
  const table = new TableStatistics({
    schema: 'public',
    table: 'items',
    version: '1',
    rows: 1_000,
    bytes: null,
    columns: [entry],
  });
  const found = table.column(entry[0]);
  if (!found) throw new Error('no column');
  return found;
}

t.test('equality', async (t) => {
  const kind = column('kind', 0.1, 12, ['a', 'b'], [0.5, 0.2], null);
  t.equal(kind.equal('a', 'text'), 0.5);
  t.ok(Math.abs((kind.equal('other', 'text') ?? 0) - 0.02) < 1e-9, 'each of ten others has a tenth of what is left');
  t.equal(column('kind', 0, 2, ['a', 'b'], [0.5, 0.5], null).equal('c', 'text'), 0, 'all values are known');
  t.equal(column('id', 0, -1, null, null, null).equal('7', 'int4'), 0.001, 'unique');
  t.equal(column('n', 0, 2, ['7'], [0.5], null).equal('+007', 'int4'), 0.5, 'another spelling of a number');
  t.equal(column('u', 0, 2, ['ab'], [0.5], null).equal('AB', 'uuid'), 0.5);
  t.equal(column('f', 0, 2, ['t', 'f'], [0.9, 0.1], null).equal('false', 'bool'), 0.1);
  t.equal(column('m', 0, 9, ['1.50'], [0.5], null).equal('1.50', 'numeric'), 0.5);
  t.equal(column('m', 0, 9, ['1.50'], [0.5], null).equal('1.5', 'numeric'), null, 'unknown, not rare');
  t.equal(column('c', 0, 9, ['A'], [0.5], null).equal('a', 'citext'), null);
});

t.test('ranges', async (t) => {
  const n = column('n', 0, -1, null, null, ['0', '10', '30', '40']);
  t.equal(n.below('0', 'int4'), 0);
  t.equal(n.below('99', 'int4'), 1);
  t.equal(n.below('20', 'int4'), 0.5);
  const mixed = column('n', 0.2, 10, ['5'], [0.4], ['0', '10']);
  t.equal(mixed.below('5', 'int4')?.toFixed(3), '0.200', 'half of those in the histogram');
  t.equal(mixed.below('6', 'int4')?.toFixed(3), '0.640');
  const at = column('at', 0, -1, null, null, ['2020-01-01 00:00:00+00', '2020-01-03 00:00:00+00']);
  t.equal(at.below('2020-01-02T00:00:00Z', 'timestamptz'), 0.5);
  t.equal(at.below('2020-01-02T02:00:00+02:00', 'timestamptz'), 0.5);
  t.equal(at.below('now', 'timestamptz'), null);
  t.equal(column('s', 0, -1, null, null, ['a', 'b']).below('b', 'text'), null, 'texts have orders of their own');
});

t.test('tables that were never analyzed', async (t) => {
  const table = new TableStatistics({
    schema: 'public',
    table: 'items',
    version: '1',
    rows: -1,
    bytes: 0,
    columns: [['a', 0, 1, null, null, null]],
  });
  t.equal(table.column('a'), null);
});
