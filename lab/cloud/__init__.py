"""A simulated private cloud: enough of OpenStack for an orchestrator, in one process.

Three regions of four halls, nine families and four sizes, spoken to through openstacksdk:
Keystone at `/identity/v3`; in each region Nova at `/{region}/compute/v2.1`, Placement at
`/{region}/placement` and Blazar at `/{region}/reservation/v1`. All state is in memory and all
time is the cloud's own.

The provider has endpoints that are not OpenStack's. They are in the catalog as service type
`rates` and need a token:

- `GET /{region}/rates/v1/rate-card`: for each hall, flavor and purchase model the price per
  instance and hour as a decimal string, the guaranteed price beside it, and the currency.
- `GET /{region}/rates/v1/forward-capacity`: for each hall, flavor and purchase model the total,
  used and free instances now, and the least that stays free over the next 24 hours.
- `GET /{region}/rates/v1/halls`: whether each hall is `up` or `lost`.

An instance reads its own metadata at `/{region}/metadata/openstack/latest/meta_data.json` and
its user data at `/{region}/metadata/openstack/latest/user_data`; it says who it is in the header
`X-Instance-ID`, where a real cloud knows it by its address.

Committed capacity exists within active leases only. A reservation names its hall with
`resource_properties`, for example `["==", "$availability_zone", "eu-north-h1"]`. While it is
active the project sees a private flavor `reservation:<id>` with the reservation's id: its servers
use the reservation and go with it. The scheduler hint `reservation` is ignored.

There is no image service: any UUID counts as an image.

Everything under `/admin` belongs to the lab, not to the provider: faults, capacity, halls, quota,
the clock, and the truth about every server. It needs the token of `cloud.json`.
"""
