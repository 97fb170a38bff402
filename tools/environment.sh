#!/usr/bin/env bash
# Installs hippo from this checkout into an environment of its own: tools/environment.sh FOLDER [EXTRA,..]
# Without extras: the base, all that planning needs. More extras may be asked for later; what is there stays.
#
# uv installs in seconds what pip installs in minutes, so it goes first; plain pip is the way out when uv fails.
# uv does not read pip's configuration: without the wheels named there, it would take torch's CUDA build.
set -euo pipefail

folder=${1:?usage: tools/environment.sh FOLDER [EXTRA,..]}
wanted=.${2:+[$2]}
python=${PYTHON:-python3}

fail() { printf 'hippo: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no '$python' here. To fix: install Python 3.11 or newer, or name it: make run PYTHON=/path/to/python3."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed; '$python' is $("$python" -c 'import platform; print(platform.python_version())'). To fix: make run PYTHON=/path/to/python3.11."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$python' cannot make environments. To fix: install its venv module (Debian: apt-get install python3-venv)."

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
pip=("$folder/bin/python" -m pip)

install_with_uv() {
    local uv wheels
    uv=$(command -v uv) || uv=$folder/bin/uv
    [ -x "$uv" ] || "${pip[@]}" install -qq uv || return
    wheels=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-$("${pip[@]}" config get global.find-links 2>/dev/null || true)}}
    if [ -n "$wheels" ]; then
        UV_FIND_LINKS=${wheels// /,} VIRTUAL_ENV=$folder "$uv" pip install --quiet -e "$wanted"
    else # no wheels of our own: ask for torch's CPU build by name
        VIRTUAL_ENV=$folder "$uv" pip install --quiet --torch-backend=cpu -e "$wanted"
    fi
}

printf 'hippo: installing %s into %s (once)\n' "$([ -n "${2:-}" ] && echo "the extras $2" || echo "the base")" "$folder" >&2
install_with_uv || {
    printf 'hippo: uv did not manage; trying plain pip (some minutes)\n' >&2
    "${pip[@]}" install -qq -e "$wanted" || fail "the packages could not be installed; see the message above."
}

# Where Python is told to keep no bytecode, every start would compile anew (a second or more): it is kept here once.
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then
    "$folder/bin/python" -m compileall -qq -j 0 -x '/(tests?|testing|models|_inductor|_dynamo)/' "$folder/lib" src || true
fi
