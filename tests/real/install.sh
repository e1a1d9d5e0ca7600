#!/usr/bin/env bash
# Install what the real-browser tests need, from Debian or Ubuntu packages. Does nothing when it is there.
set -euo pipefail

needed=(chromium)
missing=()
for package in "${needed[@]}"; do
  command -v "$package" >/dev/null || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "test-real: ${needed[*]} found"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "test-real: ${missing[*]} missing. Run as root, or: sudo apt-get install ${missing[*]}" >&2
  exit 2
fi
echo "test-real: installing ${missing[*]} from the distribution's packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" fonts-dejavu-core >/dev/null
