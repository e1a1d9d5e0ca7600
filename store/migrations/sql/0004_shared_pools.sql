-- A shared pool is one of the platform's with a regional or shared boundary. Every tenant may read it.
CREATE POLICY shared_pools ON pools FOR SELECT TO sco_tenant
  USING (tenant_id = 'platform' AND security_boundary IN ('regional', 'shared')
         AND sco_current_tenant() IS NOT NULL);

-- What belongs to a pool can be read by whoever can read the pool. The subqueries see pools through the
-- policies of their reader, and are hashed once for a statement.
CREATE POLICY shared_pools ON pool_capacity FOR SELECT TO sco_tenant
  USING (tenant_id = 'platform' AND pool_id IN (SELECT p.pool_id FROM pools p WHERE p.tenant_id = 'platform'));
CREATE POLICY shared_pools ON pool_serving FOR SELECT TO sco_tenant
  USING (tenant_id = 'platform' AND pool_id IN (SELECT p.pool_id FROM pools p WHERE p.tenant_id = 'platform'));
CREATE POLICY shared_pools ON correlation_groups FOR SELECT TO sco_tenant
  USING (tenant_id = 'platform' AND group_id IN (SELECT p.group_id FROM pools p WHERE p.tenant_id = 'platform'));

-- Of the models on a shared pool a tenant sees those which it holds there, and the one it asks about.
CREATE POLICY shared_pools ON cached_models FOR SELECT TO sco_tenant
  USING (tenant_id = 'platform'
         AND pool_id IN (SELECT p.pool_id FROM pools p WHERE p.tenant_id = 'platform')
         AND (model = sco_current_model()
              OR (pool_id, model) IN (SELECT h.pool_id, h.model FROM model_placements h
                                      WHERE h.state = 'held' AND h.pool_tenant_id = 'platform')));

-- A tenant places on pools that it can read, and reports their endpoints; on no others.
CREATE POLICY own_or_shared_pool ON model_placements AS RESTRICTIVE FOR ALL TO sco_tenant
  USING (true)
  WITH CHECK (pool_id IS NULL OR EXISTS (
    SELECT FROM pools p WHERE p.tenant_id = pool_tenant_id AND p.pool_id = model_placements.pool_id));
CREATE POLICY own_or_shared_pool ON endpoint_reports AS RESTRICTIVE FOR ALL TO sco_tenant
  USING (true)
  WITH CHECK (EXISTS (
    SELECT FROM pools p WHERE p.tenant_id = pool_tenant_id AND p.pool_id = endpoint_reports.pool_id));
