-- Who asks is not known before this is answered, and so neither is whose rows may be seen: these two
-- functions see all rows, and tell one fact about one id.

-- Whose instance a server is, while it is to run; null for every server that is not ours.
CREATE FUNCTION sco_tenant_of_server(wanted text) RETURNS text LANGUAGE sql STABLE
  SECURITY DEFINER SET search_path = pg_catalog, public
  RETURN (SELECT i.tenant_id FROM instances i
          WHERE i.server_id = wanted AND i.state IN ('building', 'active'));

-- Whose node an instance is, and the key that its requests are signed with. An instance that has ended or
-- whose identity was revoked has none.
CREATE FUNCTION sco_node(wanted text) RETURNS TABLE (tenant_id text, public_key text) LANGUAGE sql STABLE
  SECURITY DEFINER SET search_path = pg_catalog, public
BEGIN ATOMIC
  SELECT n.tenant_id, n.public_key FROM node_identities n
  JOIN instances i ON i.server_id = n.instance_id AND i.tenant_id = n.tenant_id
  WHERE n.instance_id = wanted AND n.revoked_at IS NULL AND i.state IN ('building', 'active', 'releasing');
END;

REVOKE ALL ON FUNCTION sco_tenant_of_server(text), sco_node(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sco_tenant_of_server(text), sco_node(text) TO sco_tenant, sco_service;
