/**
 * Root fields of the system that are no items: logging in, the caller's account, the schema, the server. REST routes carry them out,
 * and the descriptions of the routes (src/server/api/action.ts) say which fields there are. This file makes them fields of a schema.
 */
import {
  type DefinitionNode,
  GraphQLBoolean,
  GraphQLEnumType,
  type GraphQLFieldConfigArgumentMap,
  type GraphQLFieldConfigMap,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLString,
  type GraphQLType,
  isInputType,
  isOutputType,
  Kind,
  parse,
  parseType,
  type TypeNode,
} from 'graphql';
import type { Model } from '../model/model.js';
import { extend, type SystemField } from './field-binding.js';
import { BIG_INT_SCALAR, ID_SCALAR, INT_SCALAR, JSON_SCALAR } from './scalars.js';

/** The types that no JSON Schema of a route gives: their names and the order of their fields are those that clients know. */
const TYPES = `
  enum auth_mode { json cookie session }
  type auth_tokens { access_token: String expires: GraphQLBigInt refresh_token: String }
  type users_me_tfa_generate_data { secret: String otpauth_url: String }

  type server_info {
    project: server_info_project version: String
    rateLimit: server_info_rate_limit rateLimitGlobal: server_info_rate_limit queryLimit: server_info_query_limit
  }
  type server_info_project {
    project_name: String project_descriptor: String project_color: String default_language: String public_note: String
    public_registration: Boolean public_registration_verify_email: Boolean
  }
  type server_info_rate_limit { points: Int duration: Int }
  type server_info_query_limit { default: Int max: Int }

  type service_collections {
    collection: String meta: service_collections_meta schema: service_collections_schema
  }
  type service_collections_meta {
    collection: String icon: String note: String display_template: String color: String archive_field: String
    archive_value: String unarchive_value: String sort_field: String search_field: String accountability: String
    group: String collapse: String preview_url: String primary_key: String cache: String
    hidden: Boolean singleton: Boolean archive_app_filter: Boolean versioning: Boolean
    translations: JSON item_duplication_fields: JSON sort: JSON
  }
  type service_collections_schema { schema: String name: String kind: String comment: String }
  input create_service_collections_input {
    collection: String! fields: [create_service_fields_input!] meta: JSON schema: JSON
  }
  input update_service_collections_input { meta: JSON schema: JSON }
  type delete_collection { collection: String }

  type service_fields {
    collection: String field: String type: String meta: service_fields_meta schema: service_fields_schema
  }
  type service_fields_meta {
    collection: String field: String special: String interface: String display: String width: String group: String
    note: String validation_message: String
    readonly: Boolean required: Boolean hidden: Boolean searchable: Boolean
    id: JSON options: JSON display_options: JSON sort: JSON translations: JSON conditions: JSON validation: JSON
  }
  type service_fields_schema {
    name: String table: String data_type: String generation_expression: String
    foreign_key_column: String foreign_key_table: String comment: String
    is_generated: Boolean is_nullable: Boolean is_unique: Boolean is_indexed: Boolean is_primary_key: Boolean
    has_auto_increment: Boolean
    default_value: JSON max_length: JSON numeric_precision: JSON numeric_scale: JSON choices: [String!]
  }
  input create_service_fields_input { field: String! type: String! meta: JSON schema: JSON }
  input update_service_fields_input { field: String type: String meta: JSON schema: JSON }
  type delete_field { collection: String field: String }

  type service_relations {
    collection: String field: String related_collection: String
    meta: service_relations_meta schema: service_relations_schema
  }
  type service_relations_meta {
    many_collection: String many_field: String one_collection: String one_field: String one_collection_field: String
    junction_field: String sort_field: String one_deselect_action: String
    id: JSON one_allowed_collections: JSON
  }
  type service_relations_schema {
    table: String column: String foreign_key_table: String foreign_key_column: String foreign_key_schema: String
    constraint_name: String on_update: String on_delete: String
  }
  input create_service_relations_input {
    collection: String! field: String! related_collection: String meta: JSON schema: JSON
  }
  input update_service_relations_input { related_collection: String meta: JSON schema: JSON }
  type delete_relation { collection: String field: String }
`;

const SCALARS = [GraphQLString, GraphQLBoolean, INT_SCALAR, ID_SCALAR, JSON_SCALAR, BIG_INT_SCALAR];

type Fields = GraphQLFieldConfigMap<unknown, unknown>;
type Types = ReadonlyMap<string, GraphQLNamedType>;

const OWN_TYPES = buildTypes(TYPES);

/** Names that no other type of a schema may have. */
export const SYSTEM_TYPE_NAMES: readonly string[] = [...OWN_TYPES.keys()];

export interface SystemRoots {
  readonly types: readonly GraphQLNamedType[];
  readonly query: Fields;
  readonly mutation: Fields;
}

export class SystemFields {
  #own: SystemRoots | null = null;
  #directus: SystemRoots | null = null;

  constructor(readonly fields: readonly SystemField[]) {}

  /** With the names that the model gives to collections. */
  of({ synonyms }: Pick<Model, 'synonyms'>): SystemRoots {
    if (!synonyms) {
      this.#own ??= this.#build(OWN_TYPES, (text) => text);
      return this.#own;
    }
    this.#directus ??= this.#build(buildTypes(directusNames(TYPES)), directusNames);
    return this.#directus;
  }

  #build(types: Types, rename: (text: string) => string): SystemRoots {
    const fieldsOf = (operation: SystemField['operation']): Fields =>
      Object.fromEntries(
        this.fields
          .filter((field) => field.operation === operation)
          .map((field) => [
            field.name,
            {
              type: outputType(parseType(rename(field.type)), types),
              args: argumentsOf(field, types, rename),
              extensions: extend({ kind: 'service', field }),
            },
          ]),
      );
    return { types: [...types.values()], query: fieldsOf('query'), mutation: fieldsOf('mutation') };
  }
}

function argumentsOf({ args }: SystemField, types: Types, rename: (text: string) => string) {
  const entries = Object.entries(args).map(([name, type]) => [
    name,
    { type: inputType(parseType(rename(type)), types) },
  ]);
  return Object.fromEntries(entries) as GraphQLFieldConfigArgumentMap;
}

/** DIRECTUS_COMPATIBILITY names types after the collections of Directus. */
function directusNames(text: string): string {
  return text.replaceAll('service_', 'directus_');
}

function buildTypes(text: string): Types {
  const types = new Map<string, GraphQLNamedType>(SCALARS.map((type) => [type.name, type]));
  for (const definition of parse(text, { noLocation: true }).definitions) {
    const type = buildType(definition, types);
    types.set(type.name, type);
  }
  return types;
}

/** Fields are resolved late: types refer to types that follow them. */
function buildType(definition: DefinitionNode, types: Types): GraphQLNamedType {
  switch (definition.kind) {
    case Kind.ENUM_TYPE_DEFINITION: {
      const values = (definition.values ?? []).map(({ name }) => [name.value, {}]);
      return new GraphQLEnumType({ name: definition.name.value, values: Object.fromEntries(values) });
    }
    case Kind.OBJECT_TYPE_DEFINITION: {
      const { name, fields = [] } = definition;
      return new GraphQLObjectType({
        name: name.value,
        fields: () =>
          Object.fromEntries(fields.map((field) => [field.name.value, { type: outputType(field.type, types) }])),
      });
    }
    case Kind.INPUT_OBJECT_TYPE_DEFINITION: {
      const { name, fields = [] } = definition;
      return new GraphQLInputObjectType({
        name: name.value,
        fields: () =>
          Object.fromEntries(fields.map((field) => [field.name.value, { type: inputType(field.type, types) }])),
      });
    }
    default:
      throw new Error(`system types have no ${definition.kind}`);
  }
}

function outputType(node: TypeNode, types: Types): GraphQLOutputType {
  const type = typeOf(node, types);
  if (!isOutputType(type)) throw new Error(`${type} is no output type`);
  return type;
}

function inputType(node: TypeNode, types: Types): GraphQLInputType {
  const type = typeOf(node, types);
  if (!isInputType(type)) throw new Error(`${type} is no input type`);
  return type;
}

function typeOf(node: TypeNode, types: Types): GraphQLType {
  if (node.kind === Kind.LIST_TYPE) return new GraphQLList(typeOf(node.type, types));
  if (node.kind === Kind.NON_NULL_TYPE) {
    const type = typeOf(node.type, types);
    return type instanceof GraphQLNonNull ? type : new GraphQLNonNull(type);
  }
  const type = types.get(node.name.value);
  if (!type) throw new Error(`there is no system type ${node.name.value}`);
  return type;
}
