#!/usr/bin/env bash
# Hands exports to the targets' own parsers: installs the extras `targets` and `targets-sky` in environments of their own
# under FOLDER (default out/targets) and runs tests/export there.  tools/targets.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-out/targets}
most_s=${TARGETS_S:-600} # for an extra to be installed
export DS_BUILD_OPS=0

install() { # environment, what
    local bin=$1/bin
    [ -x "$bin/python" ] || "${PYTHON:-python3}" -m venv "$1"
    if [ -x .venv/bin/uv ]; then
        UV_FIND_LINKS="${UV_FIND_LINKS:-$("$bin/pip" config get global.find-links 2>/dev/null || true)}" \
            timeout "$most_s" .venv/bin/uv pip install -q --python "$bin/python" "${@:2}" && return
    fi
    timeout "$most_s" "$bin/pip" install -q "${@:2}"
}

# Chakra's schema without what else it asks for: only its messages are read.
schema() {
    install "$1" "protobuf>=6.31.1" && install "$1" --no-deps "mlc-chakra==1.0.0"
}

# SkyPilot's click is older than the others': an environment each.
for extra in targets targets-sky; do
    if ! install "$folder/$extra" -e ".[$extra]" "pytest>=8.4" "hypothesis>=6.120"; then
        echo "targets.sh: the extra '$extra' cannot be installed here; its tests are skipped" >&2
        continue
    fi
    [ "$extra" = targets ] && { schema "$folder/$extra" || echo "targets.sh: no Chakra schema; its tests are skipped" >&2; }
    "$folder/$extra/bin/python" -m pytest -q tests/export tests/simulate/astra
done

# Ray as `hippo serve` hands jobs to it, by the tests of this environment.
ray=$folder/targets/bin/ray
if [ -x "$ray" ]; then
    HIPPO_TEST_RAY=$ray .venv/bin/python -m pytest -q tests/serve/actuators/test_contract.py -k ray
fi
