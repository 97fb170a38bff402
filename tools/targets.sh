#!/usr/bin/env bash
# Hands exports to the targets' own parsers: installs the extras `targets` and `targets-sky` in environments of their own
# under FOLDER (default out/targets) and runs tests/export there.  tools/targets.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-out/targets}
export DS_BUILD_OPS=0

# SkyPilot's click is older than the others': an environment each.
for extra in targets targets-sky; do
    bin=$folder/$extra/bin
    [ -x "$bin/python" ] || "${PYTHON:-python3}" -m venv "$folder/$extra"
    if ! "$bin/pip" install -q -e ".[$extra]" "pytest>=8.4" "hypothesis>=6.120"; then
        echo "targets.sh: the extra '$extra' cannot be installed here; its tests are skipped" >&2
        continue
    fi
    "$bin/python" -m pytest -q tests/export
done
