/**
 * Geometries and geographies of PostGIS. Outside they are GeoJSON, in longitude and latitude of WGS 84; inside they have the system
 * of coordinates of their column, or each its own if the column names none. Shapes that GeoJSON lacks are the text of PostGIS (EWKT), in
 * their own system: curves, surfaces and shapes with a measure (M).
 */
import type { Column, Field } from '../model/model.js';
import type { Operator } from '../request/ast.js';
import { type Fragment, identifier, integerLiteral, operatorIn, sql } from '../sql/fragment.js';
import type { JsonValue } from './json.js';

/** The number of WGS 84 in the register of systems of coordinates. */
const WGS84_SRID = 4326;

export function isGeometry({ type, column }: Field): boolean {
  return type.startsWith('geometry') && column !== null;
}

/** All digits of a double. */
export function showGeometry(value: Fragment, field: Field): JsonValue {
  const call = functionsOf(columnOf(field));
  const plane = asPlane(value, field);
  const type = sql`${call('geometrytype')}(${plane})`;
  const text = sql`${call('st_asewkt')}(${plane}, 17)`;
  const isGeoJsonType = sql`${call('st_zmflag')}(${plane}) in (0, 2) and (${type} ~ '^(MULTI)?(POINT|LINESTRING|POLYGON)$'
    or ${type} = 'GEOMETRYCOLLECTION' and ${text} !~ 'CIRCULAR|CURVE|SURFACE|TIN|TRIANGLE')`;
  const geojson = sql`${call('st_asgeojson')}(${inWgs84(value, field)}, 15, 0)`;
  return {
    form: 'json',
    text: sql`case when ${isGeoJsonType} then ${geojson} else pg_catalog.to_json(${text})::text end`,
  };
}

/** The value of a column, from the text of a GeoJSON geometry or EWKT. */
export function geometryOf(text: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  const { srid } = column;
  const geometry = geoJsonShape(text, field);
  const transformed =
    srid === null || srid === WGS84_SRID
      ? geometry
      : sql`${call('st_transform')}(${geometry}, ${integerLiteral(srid)})`;
  const shape = sql`(case when ${isGeoJsonText(text)} then ${transformed} else ${call('st_geomfromewkt')}(${text}) end)`;
  return isGeography(field) ? sql`${shape}::${call('geography')}` : shape;
}

function isGeoJsonText(text: Fragment): Fragment {
  return sql`starts_with(${text}, '{')`;
}

/** In WGS 84. */
function geoJsonShape(text: Fragment, field: Field): Fragment {
  const call = functionsOf(columnOf(field));
  return sql`${call('st_setsrid')}(${call('st_geomfromgeojson')}(${text}), ${integerLiteral(WGS84_SRID)})`;
}

/** A value in the place of another. In a column without an SRID each value has one of its own, which its successor keeps. */
export function withSridOf(previous: Fragment, value: Fragment, field: Field): Fragment {
  if (!isGeometry(field) || isGeography(field) || columnOf(field).srid !== null) return value;
  const call = functionsOf(columnOf(field));
  const srid = sql`coalesce(${call('st_srid')}(${previous}), ${integerLiteral(WGS84_SRID)})`;
  return sql`case ${srid} when 0 then ${call('st_setsrid')}(${value}, 0) else ${call('st_transform')}(${value}, ${srid}) end`;
}

/** `operand` is the text of a GeoJSON geometry or EWKT. */
export function compareGeometries(left: Fragment, operator: Operator, operand: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  if (operator === 'eq' || operator === 'neq') {
    // Values are compared as they are shown: a transformation and back would not give the same digits.
    const equals = operatorIn(column.base_schema, '=');
    const [shape, plane] = [geoJsonShape(operand, field), asPlane(left, field)];
    const text = sql`${call('st_geomfromewkt')}(${operand})`;
    const test = sql`case when ${isGeoJsonText(operand)} then ${inWgs84(left, field)} ${equals} ${shape} else ${plane} ${equals} ${text} end`;
    return operator === 'eq' ? test : sql`not (${test})`;
  }
  const inside = indexed(left, field);
  const shape = geometryOf(operand, field);
  // Geographies have no `st_within`.
  if (operator === 'within')
    return sql`${call(isGeography(field) ? 'st_coveredby' : 'st_within')}(${inside}, ${shape})`;
  if (operator === 'covers') return sql`${call('st_covers')}(${inside}, ${shape})`;
  const test = operator.endsWith('bbox')
    ? sql`${inside} ${operatorIn(column.base_schema, '&&')} ${shape}`
    : sql`${call('st_intersects')}(${inside}, ${shape})`;
  return operator.startsWith('n') ? sql`not (${test})` : test;
}

/** Metres for a geography, units of the system of coordinates for a geometry. */
export function isWithinDistance(left: Fragment, value: Fragment, distance: Fragment, field: Field): Fragment {
  const call = functionsOf(columnOf(field));
  return sql`${call('st_dwithin')}(${indexed(left, field)}, ${geometryOf(value, field)}, ${distance})`;
}

/** Indexes are on the column as it is; values of a column without an SRID are transformed first. */
function indexed(left: Fragment, field: Field): Fragment {
  return columnOf(field).srid === null && !isGeography(field) ? inWgs84(left, field) : left;
}

/** As a geometry of WGS 84. A geometry that names no system of coordinates is taken as it is. */
function inWgs84(value: Fragment, field: Field): Fragment {
  const column = columnOf(field);
  const call = functionsOf(column);
  const plane = asPlane(value, field);
  if (column.srid === WGS84_SRID || (isGeography(field) && column.srid === null)) return plane;
  const transformed = sql`${call('st_transform')}(${plane}, ${integerLiteral(WGS84_SRID)})`;
  if (column.srid !== null) return transformed;
  const withSrid = sql`${call('st_setsrid')}(${plane}, ${integerLiteral(WGS84_SRID)})`;
  return sql`case ${call('st_srid')}(${plane}) when ${integerLiteral(WGS84_SRID)} then ${plane} when 0 then ${withSrid} else ${transformed} end`;
}

function asPlane(value: Fragment, field: Field): Fragment {
  return isGeography(field) ? sql`${value}::${functionsOf(columnOf(field))('geometry')}` : value;
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
