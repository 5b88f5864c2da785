-- What came from another installation (lateral adopt), so that a later run finds the rows it has made: keys may differ, and
-- what was taken away there since is taken away here.
create table service_adopted (
  source varchar(255) not null,
  source_key varchar(255) not null,
  target_key varchar(255) not null,
  constraint service_adopted_pkey primary key (source, source_key)
);

comment on column service_adopted.source is 'The table of the other installation';
