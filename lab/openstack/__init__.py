"""A real OpenStack on one machine: Keystone, Placement and Nova with its fake hypervisor.

It is what the provider adapter is checked against. Nova runs all its roles in one process, so that
its messages need no broker; Keystone runs in a second; both keep their state in a Postgres of their
own. Images, networks and the provider's rates are answered by a stub. Everything listens on loopback.

The services have a virtual environment of their own, `.openstack/venv`, made by `make openstack`.
What runs inside it is in `lab.openstack.server`; everything else here runs outside.
"""
