-- The audit log is written once. Lost slots are final, like those that are gone or failed.

CREATE FUNCTION sco_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: what was done stays written', tg_table_name
    USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_log
  FOR EACH ROW EXECUTE FUNCTION sco_append_only();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON audit_log
  FOR EACH STATEMENT EXECUTE FUNCTION sco_append_only();

DROP TRIGGER slot_is_fixed ON instances;
CREATE TRIGGER slot_is_fixed BEFORE UPDATE ON instances FOR EACH ROW WHEN (
  (old.tenant_id, old.slot_key, old.workload_id, old.pool_id, old.shape_key)
    IS DISTINCT FROM (new.tenant_id, new.slot_key, new.workload_id, new.pool_id, new.shape_key)
  OR (old.server_id IS NOT NULL AND old.server_id IS DISTINCT FROM new.server_id)
  OR (old.state IN ('gone', 'failed', 'lost') AND old.state IS DISTINCT FROM new.state)
) EXECUTE FUNCTION sco_slot_is_fixed();
