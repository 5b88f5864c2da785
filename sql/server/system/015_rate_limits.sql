-- Requests that were counted, where several instances count together. Unlogged: to lose it costs nothing but a count that begins
-- anew, and commits wait for no disk and no standby.
create unlogged table service_rate_limits (
  key varchar(255) primary key,
  points integer not null,
  expire bigint
);
