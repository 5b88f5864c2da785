/** Root fields of the system once more, with the names of types that DIRECTUS_COMPATIBILITY gives them. */
import {
  type GraphQLFieldConfigArgumentMap,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  GraphQLNonNull,
  type GraphQLNullableType,
  GraphQLObjectType,
  type GraphQLOutputType,
  type GraphQLType,
} from 'graphql';

interface Typed {
  readonly type: GraphQLOutputType;
  readonly args: GraphQLFieldConfigArgumentMap;
}

export function renamedFields<Field extends Typed>(
  fields: Readonly<Record<string, Field>>,
): Readonly<Record<string, Field>> {
  const known = new Map<GraphQLType, GraphQLType>();
  const rename = <Type extends GraphQLType>(type: Type): Type => {
    const made = known.get(type) ?? renamed(type, rename);
    known.set(type, made);
    return made as Type;
  };
  return Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [
      name,
      { ...field, type: rename(field.type), args: withTypes(field.args, rename) },
    ]),
  );
}

function renamed(type: GraphQLType, rename: <Type extends GraphQLType>(type: Type) => Type): GraphQLType {
  if (type instanceof GraphQLNonNull) return new GraphQLNonNull(rename(type.ofType as GraphQLNullableType));
  if (type instanceof GraphQLList) return new GraphQLList(rename(type.ofType as GraphQLType));
  if (type instanceof GraphQLObjectType) {
    const config = type.toConfig();
    return new GraphQLObjectType({
      ...config,
      name: familyTypeName(config.name),
      fields: withTypes(config.fields, rename),
    });
  }
  if (type instanceof GraphQLInputObjectType) {
    const config = type.toConfig();
    return new GraphQLInputObjectType({
      ...config,
      name: familyTypeName(config.name),
      fields: withTypes(config.fields, rename),
    });
  }
  return type;
}

function familyTypeName(name: string): string {
  return name.replace(/(^|_)service_/, '$1directus_');
}

function withTypes<Entry extends { readonly type: GraphQLOutputType | GraphQLInputType }>(
  entries: Readonly<Record<string, Entry>>,
  rename: <Type extends GraphQLType>(type: Type) => Type,
): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(entries).map(([name, entry]) => [name, { ...entry, type: rename(entry.type) }]),
  );
}
