#!/usr/bin/env bash
# Install a browser, Prometheus's promtool, Slurm and Swift from Debian or Ubuntu packages. Does nothing when all are
# there.
set -euo pipefail

# Slurm's daemons lie where an ordinary user's PATH does not look.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

wanted=()
found=""
for browser in chromium chromium-browser google-chrome; do
  command -v "$browser" >/dev/null && { found="$browser"; break; }
done
[ -n "$found" ] || wanted+=(chromium fonts-dejavu-core)
command -v promtool >/dev/null || wanted+=(prometheus)
command -v systemd-analyze >/dev/null || wanted+=(systemd)
command -v slurmctld >/dev/null || wanted+=(slurmctld)
command -v slurmd >/dev/null || wanted+=(slurmd)
command -v scontrol >/dev/null || wanted+=(slurm-client)
command -v munged >/dev/null || wanted+=(munge)
# A plugin is missing when Slurm was installed without what it recommends.
compgen -G '/usr/lib/*/slurm*/auth_munge.so' >/dev/null || wanted+=(slurm-wlm-basic-plugins)
# The library alone: its servers are started by tests, not as services of the machine.
/usr/bin/python3 -c 'import swift' 2>/dev/null || wanted+=(python3-swift)

if [ "${#wanted[@]}" -eq 0 ]; then
  echo "test-real: $found, promtool, $(slurmctld -V) and swift found"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "test-real: something is missing. Run as root, or: sudo apt-get install ${wanted[*]}" >&2
  exit 2
fi
echo "test-real: installing ${wanted[*]} from the distribution's packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
