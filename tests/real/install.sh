#!/usr/bin/env bash
# Install what the real-browser tests need, from Debian or Ubuntu packages. Does nothing when it is there.
set -euo pipefail

for browser in chromium chromium-browser google-chrome; do
  if command -v "$browser" >/dev/null; then
    echo "test-real: $browser found"
    exit 0
  fi
done
if [ "$(id -u)" -ne 0 ]; then
  echo "test-real: no browser found. Run as root, or: sudo apt-get install chromium fonts-dejavu-core" >&2
  exit 2
fi
echo "test-real: installing chromium from the distribution's packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
