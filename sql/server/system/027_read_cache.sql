-- Whether answers that show rows of a collection may be kept in memory (READ_CACHE_SIZE).
alter table service_collections add column cache varchar(255) constraint service_collections_cache_check
  check (cache::text = 'off');
comment on column service_collections.cache is 'off: answers with rows of the collection are not kept in memory';
