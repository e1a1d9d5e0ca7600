#!/usr/bin/env bash
# Install a browser and Prometheus's promtool from Debian or Ubuntu packages. Does nothing when both are there.
set -euo pipefail

wanted=()
found=""
for browser in chromium chromium-browser google-chrome; do
  command -v "$browser" >/dev/null && { found="$browser"; break; }
done
[ -n "$found" ] || wanted+=(chromium fonts-dejavu-core)
command -v promtool >/dev/null || wanted+=(prometheus)

if [ "${#wanted[@]}" -eq 0 ]; then
  echo "test-real: $found and promtool found"
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
