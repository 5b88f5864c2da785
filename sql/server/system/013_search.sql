-- A column of texts that are prepared for full text search takes the place of a search through all fields.

alter table service_collections add column search_field varchar(255);

comment on column service_collections.search_field is 'A field of type tsvector that a search looks into; null for all texts, numbers and UUIDs';
