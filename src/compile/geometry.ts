/**
 * Geometries and geographies of PostGIS. Outside they are GeoJSON, in longitude and latitude of WGS 84; inside they have the system
 * of coordinates of their column, or each one of its own where the column names none.
 */
import type { Column, Field } from '../mirror/model.js';
import type { Operator } from '../request/ast.js';
import { type Fragment, identifier, integerLiteral, sql } from '../sql/fragment.js';
import type { JsonValue } from './json.js';

/** The number of WGS 84 in the register of systems of coordinates. */
const WORLD = 4326;

export function isGeometry({ type, column }: Field): boolean {
  return type.startsWith('geometry') && column !== null;
}

/** All digits that a double has. What GeoJSON has no type for, such as curves, is shown as the text of PostGIS. */
export function showGeometry(value: Fragment, field: Field): JsonValue {
  const call = functionsOf(columnOf(field));
  const plane = isGeography(field) ? sql`${value}::${call('geometry')}` : value;
  const known = sql`${call('geometrytype')}(${plane}) ~ '^((MULTI)?(POINT|LINESTRING|POLYGON)|GEOMETRYCOLLECTION)M?$' and not ${call('st_hasarc')}(${plane})`;
  const geojson = sql`${call('st_asgeojson')}(${inWorld(value, field)}, 15, 0)`;
  return {
    form: 'json',
    text: sql`case when ${known} then ${geojson} else pg_catalog.to_json(${call('st_asewkt')}(${plane}))::text end`,
  };
}

/** The value of a column, from the text of a GeoJSON geometry. */
export function geometryOf(text: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  const given = sql`${call('st_setsrid')}(${call('st_geomfromgeojson')}(${text}), ${integerLiteral(WORLD)})`;
  const { srid } = column;
  const moved =
    srid === null || srid === WORLD ? given : sql`${call('st_transform')}(${given}, ${integerLiteral(srid)})`;
  return isGeography(field) ? sql`${moved}::${call('geography')}` : moved;
}

/** `given` is the text of a GeoJSON geometry. */
export function compareGeometries(left: Fragment, operator: Operator, given: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  if (operator === 'eq' || operator === 'neq') {
    // What is shown of a value is compared: a system of coordinates and back would not give the same digits.
    const shape = sql`${call('st_setsrid')}(${call('st_geomfromgeojson')}(${given}), ${integerLiteral(WORLD)})`;
    const equals = operatorOf(column, sql`=`);
    const test = sql`${inWorld(left, field)} ${equals} ${shape}`;
    return operator === 'eq' ? test : sql`not (${test})`;
  }
  const inside = indexed(left, field);
  const shape = geometryOf(given, field);
  // Geographies have no `st_within`.
  if (operator === 'within')
    return sql`${call(isGeography(field) ? 'st_coveredby' : 'st_within')}(${inside}, ${shape})`;
  if (operator === 'covers') return sql`${call('st_covers')}(${inside}, ${shape})`;
  const test = operator.endsWith('bbox')
    ? sql`${inside} ${operatorOf(column, sql`&&`)} ${shape}`
    : sql`${call('st_intersects')}(${inside}, ${shape})`;
  return operator.startsWith('n') ? sql`not (${test})` : test;
}

/** Metres for a geography, units of the system of coordinates for a geometry. */
export function isWithinDistance(left: Fragment, given: Fragment, distance: Fragment, field: Field): Fragment {
  const call = functionsOf(columnOf(field));
  return sql`${call('st_dwithin')}(${indexed(left, field)}, ${geometryOf(given, field)}, ${distance})`;
}

/** An index is one of the column as it is; without a system of its own its values have to be brought into one. */
function indexed(left: Fragment, field: Field): Fragment {
  return columnOf(field).srid === null && !isGeography(field) ? inWorld(left, field) : left;
}

/** As a geometry of WGS 84. A geometry that names no system of coordinates is taken as it is. */
function inWorld(value: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  const plane = isGeography(field) ? sql`${value}::${call('geometry')}` : value;
  if (column.srid === WORLD || (isGeography(field) && column.srid === null)) return plane;
  const moved = sql`${call('st_transform')}(${plane}, ${integerLiteral(WORLD)})`;
  if (column.srid !== null) return moved;
  const named = sql`${call('st_setsrid')}(${plane}, ${integerLiteral(WORLD)})`;
  return sql`case ${call('st_srid')}(${plane}) when ${integerLiteral(WORLD)} then ${plane} when 0 then ${named} else ${moved} end`;
}

function isGeography(field: Field): boolean {
  return columnOf(field).base_type === 'geography';
}

function columnOf({ name, column }: Field): Column {
  if (!column) throw new Error(`the field "${name}" has no column`);
  return column;
}

/** Functions, types and operators of an extension are in one schema, which need not be on the search path. */
function functionsOf({ base_schema }: Column): (name: string) => Fragment {
  return (name) => identifier(base_schema, name);
}

function operatorOf({ base_schema }: Column, operator: Fragment): Fragment {
  return sql`operator(${identifier(base_schema)}.${operator})`;
}
