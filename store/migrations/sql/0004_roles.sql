-- The two roles that processes work as. They belong to the whole cluster, so they may be there already;
-- logins are made by whoever runs the cluster: CREATE ROLE name LOGIN PASSWORD ... IN ROLE sco_tenant.
DO $$
DECLARE wanted text;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['sco_tenant', 'sco_service'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- Another database of this cluster is migrated at the same moment.
      END;
    END IF;
  END LOOP;
END $$;

GRANT USAGE ON SCHEMA public TO sco_tenant, sco_service;
GRANT SELECT ON alembic_version TO sco_tenant, sco_service;

-- Whose rows this transaction sees: null where nobody is named, which equals no tenant.
CREATE FUNCTION sco_current_tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(current_setting('sco.tenant', true), '');

-- The model that this transaction asks about: of shared pools it may see that one, and those it holds.
CREATE FUNCTION sco_current_model() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
  RETURN nullif(current_setting('sco.model', true), '');
