-- Several schemas may be served: two of their tables may want the same name, and any table may get another one.

alter table service_collections add column "schema" varchar(255);
alter table service_collections add column "table" varchar(255);

comment on column service_collections."schema" is 'The schema of the table; null for the first one that is served';
comment on column service_collections."table" is 'The table that the collection stands for; null where the name of the collection tells';
