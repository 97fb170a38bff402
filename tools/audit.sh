#!/usr/bin/env bash
# What is dangerous: hippo's own code by ruff's rules S, and the packages of .venv among known vulnerabilities (pip-audit,
# in an environment of its own; it asks pypi.org). What was looked at and accepted stands in tools/accepted-findings.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
accepted=tools/accepted-findings.txt
found=$(mktemp) && trap 'rm -f "$found"' EXIT

.venv/bin/ruff check --exit-zero --quiet --select S --output-format json src benchmarks tools |
    .venv/bin/python -c '
import json, os, sys
rows = {(each["code"], os.path.relpath(each["filename"])) for each in json.load(sys.stdin)}
print("\n".join(sorted(f"{code} {path}" for code, path in rows)))' >"$found"
status=0
while read -r code path; do
    if ! grep -qE "^$code (\*|$path)( |$)" "$accepted"; then
        echo "audit: $code in $path is not accepted. To fix: mend it, or write it with its reason into $accepted" >&2
        status=1
    fi
done <"$found"
while read -r code path _; do
    [[ $code == S* ]] || continue
    if [ "$path" = "*" ] || grep -qxF "$code $path" "$found"; then continue; fi
    echo "audit: $code in $path is found no more. To fix: take it out of $accepted" >&2
    status=1
done < <(grep -vE '^(#|$)' "$accepted")

bin=out/audit/bin
[ -x "$bin/python" ] || python3 -m venv out/audit
"$bin/python" -c "import pip_audit" 2>/dev/null || "$bin/pip" install -q pip-audit
ignored=$(grep -oE '^(GHSA|PYSEC|CVE)[A-Za-z0-9-]*' "$accepted" | sed 's/^/--ignore-vuln /' || true)
site=$(echo .venv/lib/python*/site-packages)
# shellcheck disable=SC2086
if ! "$bin/pip-audit" --path "$site" --skip-editable --progress-spinner off --strict $ignored; then
    echo "audit: packages have known vulnerabilities, or could not be looked up (pypi.org has to answer)" >&2
    status=1
fi
[ "$status" = 0 ] && echo "nothing but what is accepted"
exit "$status"
