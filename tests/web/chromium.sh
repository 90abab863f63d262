#!/usr/bin/env bash
# Make sure that there is a browser for tests/web: Debian's chromium, installed if this user may.
set -euo pipefail
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core >/dev/null
else
  echo 'tests/web: no chromium; install it (apt-get install chromium), else its tests are skipped' >&2
fi
