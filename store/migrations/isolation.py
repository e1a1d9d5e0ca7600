"""Row-level security of a table, for the migration that makes it.

`sco_tenant` (the API) sees the rows of the tenant that its transaction names, and none where it names
none; `sco_service` (workers, sweepers, the auditor) sees all. The owner is neither: it only migrates.
"""

from __future__ import annotations

from alembic import op

TENANT_ROLE = "sco_tenant"
SERVICE_ROLE = "sco_service"


def isolate(table: str, *, tenant_may: str, service_may: str = "SELECT, INSERT, UPDATE, DELETE") -> None:
    """Close a table to everybody but the two roles, and give each what it may do with the rows it sees.

    `tenant_may` and `service_may` are lists of privileges as GRANT takes them; empty grants nothing.
    """
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_rows ON {table} FOR ALL TO {TENANT_ROLE}"
        " USING (tenant_id = sco_current_tenant()) WITH CHECK (tenant_id = sco_current_tenant())"
    )
    op.execute(f"CREATE POLICY all_rows ON {table} FOR ALL TO {SERVICE_ROLE} USING (true) WITH CHECK (true)")
    for role, may in ((TENANT_ROLE, tenant_may), (SERVICE_ROLE, service_may)):
        if may:
            op.execute(f"GRANT {may} ON {table} TO {role}")
