/**
 * GeoJSON as RFC 7946 has it: a geometry whose positions are longitude and latitude of WGS 84. PostGIS answers input that it cannot
 * read with an error of its own inside, so the service checks everything before it sends it. Shapes that GeoJSON lacks are the text of
 * PostGIS (EWKT).
 */
import { isRecord, propertiesOf } from '../../base/narrow.js';

type Check = (value: unknown) => boolean;

const isPosition: Check = (value) =>
  Array.isArray(value) && value.length >= 2 && value.length <= 3 && value.every((each) => isCoordinate(each));
const listOf =
  (check: Check, least = 0): Check =>
  (value) =>
    Array.isArray(value) && value.length >= least && value.every((each) => check(each));
const isLine = listOf(isPosition, 2);
const isRing: Check = (value) =>
  Array.isArray(value) && listOf(isPosition, 4)(value) && String(value.at(0)) === String(value.at(-1));
const isPolygon = listOf(isRing, 1);

const COORDINATES: Readonly<Record<string, Check>> = {
  Point: isPosition,
  LineString: isLine,
  Polygon: isPolygon,
  MultiPoint: listOf(isPosition),
  MultiLineString: listOf(isLine),
  MultiPolygon: listOf(isPolygon),
};

/** Levels of collections inside collections. */
const MAX_DEPTH = 20;

function isGeoJson(value: unknown, depth = 0): boolean {
  if (!isRecord(value) || Array.isArray(value) || depth > MAX_DEPTH) return false;
  const { type, coordinates, geometries, crs } = value;
  if (!isWorld(crs) || typeof type !== 'string') return false;
  if (type === 'GeometryCollection')
    return Array.isArray(geometries) && geometries.every((each) => isGeoJson(each, depth + 1));
  const check = Object.hasOwn(COORDINATES, type) ? COORDINATES[type] : undefined;
  // An empty geometry has no coordinates, whatever its type.
  return check !== undefined && Array.isArray(coordinates) && (coordinates.length === 0 || check(coordinates));
}

/** The values of a geometry field, for errors. */
export const SHAPE = 'a GeoJSON geometry of WGS 84 (RFC 7946), or EWKT for a shape that GeoJSON does not have';

const EWKT =
  /^(?:SRID=\d{1,6};)?(?:POINT|LINESTRING|POLYGON|MULTI(?:POINT|LINESTRING|POLYGON|CURVE|SURFACE)|GEOMETRYCOLLECTION|CIRCULARSTRING|COMPOUNDCURVE|CURVEPOLYGON|POLYHEDRALSURFACE|TIN|TRIANGLE) ?(Z?M)? ?(?:EMPTY|\([A-Z\d\s.,()+-]*\))$/i;
const OF_POSTGIS = /CIRCULAR|CURVE|SURFACE|\bTIN|TRIANGLE/i;
/** A position of four numbers. */
const MEASURED = /[(,]\s*(?:[^\s,()]+\s+){3}[^\s,()]+\s*[,)]/;

/** The text of a shape as PostGIS or GeoJSON has it, or null if it is none. */
export function shapeText(given: string): string | null {
  const text = given.trim();
  if (!text.startsWith('{')) {
    const [isEwkt, measure] = EWKT.exec(text) ?? [];
    return isEwkt && (measure || OF_POSTGIS.test(text) || MEASURED.test(text)) ? text : null;
  }
  try {
    return isGeoJson(JSON.parse(text)) ? text : null;
  } catch {
    return null;
  }
}

/** One that is too large for JavaScript is infinite. */
function isCoordinate(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value);
}

/** Other systems of coordinates are no longer part of the standard. */
function isWorld(crs: unknown): boolean {
  if (crs === undefined || crs === null) return true;
  const { name } = propertiesOf(propertiesOf(crs)['properties']);
  return typeof name === 'string' && /\b(EPSG:+4326|CRS84)$/.test(name);
}
