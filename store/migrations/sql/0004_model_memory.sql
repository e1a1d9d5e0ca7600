-- Every pool with accelerator memory is counted from its first moment.
CREATE FUNCTION sco_pool_serves() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  INSERT INTO pool_serving (tenant_id, pool_id, vram_gb)
  SELECT tenant_id, pool_id, vram_gb FROM new_rows WHERE vram_gb > 0;
  RETURN NULL;
END $$;
CREATE TRIGGER pool_serves AFTER INSERT ON pools
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sco_pool_serves();
INSERT INTO pool_serving (tenant_id, pool_id, vram_gb)
  SELECT tenant_id, pool_id, vram_gb FROM pools WHERE vram_gb > 0;

-- The memory of the models on a pool, counted with every change of them. The CHECK of pool_serving refuses
-- what does not fit, whoever writes.
CREATE FUNCTION sco_count_model_memory() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE pool_serving SET committed_vram_gb = committed_vram_gb - OLD.vram_gb
    WHERE tenant_id = OLD.tenant_id AND pool_id = OLD.pool_id;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    UPDATE pool_serving SET committed_vram_gb = committed_vram_gb + NEW.vram_gb
    WHERE tenant_id = NEW.tenant_id AND pool_id = NEW.pool_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER count_model_memory AFTER INSERT OR DELETE ON cached_models
  FOR EACH ROW EXECUTE FUNCTION sco_count_model_memory();
CREATE TRIGGER count_grown_model AFTER UPDATE OF vram_gb ON cached_models
  FOR EACH ROW WHEN (OLD.vram_gb <> NEW.vram_gb) EXECUTE FUNCTION sco_count_model_memory();

-- A placement that is held keeps the memory of its model on its pool. It is held once, on a pool that takes
-- placements, and never changes its place.
CREATE FUNCTION sco_hold_model() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  PERFORM FROM pools WHERE tenant_id = NEW.pool_tenant_id AND pool_id = NEW.pool_id AND state = 'active'
    AND endpoint_ref IS NOT NULL FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'pool % takes no placements', NEW.pool_id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'pool_takes_placements';
  END IF;
  INSERT INTO cached_models AS there (tenant_id, pool_id, model, vram_gb, state, holds, last_used_at)
  VALUES (NEW.pool_tenant_id, NEW.pool_id, NEW.model, NEW.vram_gb, 'promised', 1, NEW.decided_at)
  ON CONFLICT (tenant_id, pool_id, model) DO UPDATE
    SET holds = there.holds + 1, vram_gb = greatest(there.vram_gb, EXCLUDED.vram_gb),
        last_used_at = greatest(there.last_used_at, EXCLUDED.last_used_at);
  RETURN NULL;
END $$;
CREATE TRIGGER hold_model AFTER INSERT ON model_placements
  FOR EACH ROW WHEN (NEW.state = 'held') EXECUTE FUNCTION sco_hold_model();

CREATE FUNCTION sco_let_go_of_model() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE cached_models
  SET holds = holds - 1, last_used_at = greatest(last_used_at, least(NEW.ended_at, now()))
  WHERE tenant_id = OLD.pool_tenant_id AND pool_id = OLD.pool_id AND model = OLD.model;
  DELETE FROM cached_models
  WHERE tenant_id = OLD.pool_tenant_id AND pool_id = OLD.pool_id AND model = OLD.model
    AND holds = 0 AND state = 'promised';
  RETURN NULL;
END $$;
CREATE TRIGGER let_go_of_model AFTER UPDATE OF state ON model_placements
  FOR EACH ROW WHEN (OLD.state = 'held' AND NEW.state <> 'held') EXECUTE FUNCTION sco_let_go_of_model();

CREATE FUNCTION sco_placement_is_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'placement % has its place and its end once', OLD.placement_id
    USING ERRCODE = 'check_violation', CONSTRAINT = 'placement_is_fixed';
END $$;
CREATE TRIGGER placement_is_fixed BEFORE UPDATE ON model_placements
  FOR EACH ROW WHEN (
    (OLD.state <> 'held' AND NEW.state IS DISTINCT FROM OLD.state)
    OR (NEW.pool_tenant_id, NEW.pool_id, NEW.model, NEW.vram_gb, NEW.outcome, NEW.tenant_id)
       IS DISTINCT FROM (OLD.pool_tenant_id, OLD.pool_id, OLD.model, OLD.vram_gb, OLD.outcome, OLD.tenant_id)
  ) EXECUTE FUNCTION sco_placement_is_fixed();
CREATE TRIGGER held_placement_stays BEFORE DELETE ON model_placements
  FOR EACH ROW WHEN (OLD.state = 'held') EXECUTE FUNCTION sco_placement_is_fixed();

-- One word for placements of units and of models: a degraded endpoint.
CREATE FUNCTION sco_pool_is_degraded() RETURNS trigger LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE pool_capacity SET degraded = (NEW.health = 'degraded')
  WHERE tenant_id = NEW.tenant_id AND pool_id = NEW.pool_id;
  RETURN NULL;
END $$;
CREATE TRIGGER pool_is_degraded AFTER UPDATE OF health ON pool_serving
  FOR EACH ROW WHEN (OLD.health <> NEW.health) EXECUTE FUNCTION sco_pool_is_degraded();
