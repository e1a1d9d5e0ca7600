-- A pool takes new slots in state active alone. A step in its life locks its capacity row, as planning
-- does: a plan that was made before the step and is written after it fails here.
CREATE FUNCTION sco_pool_takes_slots() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE refused text;
BEGIN
  SELECT min(p.pool_id || ' is ' || p.state) INTO refused
  FROM new_rows n JOIN pools p USING (tenant_id, pool_id)
  WHERE n.state = 'planned' AND p.state <> 'active';
  IF refused IS NOT NULL THEN
    RAISE EXCEPTION 'pool %: it takes no new slots', refused
      USING ERRCODE = 'check_violation', CONSTRAINT = 'pool_takes_slots';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER pool_takes_slots AFTER INSERT ON instances
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sco_pool_takes_slots();
