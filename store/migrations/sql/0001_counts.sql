-- Counts that no caller writes: live slots per reservation, reserved instances per pool.

CREATE FUNCTION sco_live(state text) RETURNS int IMMUTABLE LANGUAGE sql AS $$
  SELECT CASE WHEN state IN ('planned', 'building', 'active', 'releasing') THEN 1 ELSE 0 END
$$;

-- A slot keeps what it was planned as; a bound server and an ended state are final.
CREATE FUNCTION sco_slot_is_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'slot % keeps its workload, pool and shape, its bound server and its final state', old.slot_key
    USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER slot_is_fixed BEFORE UPDATE ON instances FOR EACH ROW WHEN (
  (old.tenant_id, old.slot_key, old.workload_id, old.pool_id, old.shape_key)
    IS DISTINCT FROM (new.tenant_id, new.slot_key, new.workload_id, new.pool_id, new.shape_key)
  OR (old.server_id IS NOT NULL AND old.server_id IS DISTINCT FROM new.server_id)
  OR (old.state IN ('gone', 'failed') AND old.state IS DISTINCT FROM new.state)
) EXECUTE FUNCTION sco_slot_is_fixed();

CREATE FUNCTION sco_count_new_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO reservations AS r (tenant_id, workload_id, pool_id, shape_key, instances)
  SELECT tenant_id, workload_id, pool_id, shape_key, sum(sco_live(state))
  FROM new_rows GROUP BY 1, 2, 3, 4 ORDER BY 1, 3, 2, 4
  ON CONFLICT (tenant_id, workload_id, pool_id, shape_key)
  DO UPDATE SET instances = r.instances + excluded.instances;
  RETURN NULL;
END $$;
CREATE TRIGGER count_new_slots AFTER INSERT ON instances
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sco_count_new_slots();

CREATE FUNCTION sco_count_changed_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE reservations r SET instances = r.instances + d.delta
  FROM (
    SELECT n.tenant_id, n.workload_id, n.pool_id, n.shape_key,
           sum(sco_live(n.state) - sco_live(o.state)) AS delta
    FROM new_rows n JOIN old_rows o USING (tenant_id, slot_key)
    GROUP BY 1, 2, 3, 4 HAVING sum(sco_live(n.state) - sco_live(o.state)) <> 0
  ) d
  WHERE (r.tenant_id, r.workload_id, r.pool_id, r.shape_key)
      = (d.tenant_id, d.workload_id, d.pool_id, d.shape_key);
  RETURN NULL;
END $$;
CREATE TRIGGER count_changed_slots AFTER UPDATE ON instances
  REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION sco_count_changed_slots();

CREATE FUNCTION sco_count_removed_slots() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE reservations r SET instances = r.instances - d.live
  FROM (SELECT tenant_id, workload_id, pool_id, shape_key, sum(sco_live(state)) AS live
        FROM old_rows GROUP BY 1, 2, 3, 4) d
  WHERE (r.tenant_id, r.workload_id, r.pool_id, r.shape_key)
      = (d.tenant_id, d.workload_id, d.pool_id, d.shape_key);
  RETURN NULL;
END $$;
CREATE TRIGGER count_removed_slots AFTER DELETE ON instances
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION sco_count_removed_slots();

CREATE FUNCTION sco_book_capacity() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE delta int := coalesce(new.instances, 0) - coalesce(old.instances, 0);
BEGIN
  IF delta <> 0 THEN
    UPDATE pool_capacity SET reserved_instances = reserved_instances + delta
    WHERE tenant_id = coalesce(new.tenant_id, old.tenant_id)
      AND pool_id = coalesce(new.pool_id, old.pool_id);
    IF NOT FOUND THEN
      RAISE EXCEPTION 'pool % has no capacity record', coalesce(new.pool_id, old.pool_id)
        USING ERRCODE = 'foreign_key_violation';
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER book_capacity AFTER INSERT OR UPDATE OR DELETE ON reservations
  FOR EACH ROW EXECUTE FUNCTION sco_book_capacity();

-- The counts follow the slots: they are written by the triggers above and by nobody else.
CREATE FUNCTION sco_count_is_derived() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'what % counts follows the slots: change those', tg_table_name
    USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER count_is_derived BEFORE UPDATE OF instances ON reservations FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND new.instances <> old.instances) EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER count_starts_empty BEFORE INSERT ON reservations FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND new.instances <> 0) EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER count_ends_empty BEFORE DELETE ON reservations FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND old.instances <> 0) EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER count_is_derived BEFORE UPDATE OF reserved_instances ON pool_capacity FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND new.reserved_instances <> old.reserved_instances)
  EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER count_starts_empty BEFORE INSERT ON pool_capacity FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND new.reserved_instances <> 0) EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER count_ends_empty BEFORE DELETE ON pool_capacity FOR EACH ROW
  WHEN (pg_trigger_depth() = 0 AND old.reserved_instances <> 0) EXECUTE FUNCTION sco_count_is_derived();
CREATE TRIGGER slots_are_never_truncated BEFORE TRUNCATE ON instances
  FOR EACH STATEMENT EXECUTE FUNCTION sco_count_is_derived();
