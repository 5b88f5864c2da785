-- How many rows the planner expects of a query of the service. Its values are texts, which the query takes from $1. The names in it are
-- those of the session that reads, so the function has no search path of its own; it runs with the rights of who calls it.
create function service_estimate(query text, parameters text[]) returns bigint language plpgsql volatile as $$
declare
  plan json;
begin
  execute 'explain (format json) ' || query into plan using parameters;
  return (plan -> 0 -> 'Plan' ->> 'Plan Rows')::numeric::bigint;
end
$$;
