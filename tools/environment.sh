#!/usr/bin/env bash
# Makes the environment that `make run` and `make test` share: tools/environment.sh FOLDER
#
# uv installs in seconds what pip installs in minutes, so it goes first; plain pip is the way out when uv fails.
# uv does not read pip's configuration: without the wheels named there, it would take torch's CUDA build.
set -euo pipefail

folder=${1:?usage: tools/environment.sh FOLDER}
python=${PYTHON:-python3}
wanted='.[dev,learn,solve]'

fail() { printf 'hippo: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "no '$python' here. To fix: install Python 3.11 or newer, or name it: make run PYTHON=/path/to/python3."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed; '$python' is $("$python" -c 'import platform; print(platform.python_version())'). To fix: make run PYTHON=/path/to/python3.11."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$python' cannot make environments. To fix: install its venv module (Debian: apt-get install python3-venv)."

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
pip=("$folder/bin/python" -m pip)

install_with_uv() {
    "${pip[@]}" install -qq uv || return
    local wheels
    wheels=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-$("${pip[@]}" config get global.find-links 2>/dev/null || true)}}
    if [ -n "$wheels" ]; then
        UV_FIND_LINKS=${wheels// /,} VIRTUAL_ENV=$folder "$folder/bin/uv" pip install --quiet -e "$wanted"
    else # no wheels of our own: ask for torch's CPU build by name
        VIRTUAL_ENV=$folder "$folder/bin/uv" pip install --quiet --torch-backend=cpu -e "$wanted"
    fi
}

printf 'hippo: making the environment in %s (once; a minute or so)\n' "$folder" >&2
install_with_uv || {
    printf 'hippo: uv did not manage; trying plain pip (some minutes)\n' >&2
    "${pip[@]}" install -qq -e "$wanted" || fail "the packages could not be installed; see the message above."
}

# uv compiles nothing, and where PYTHONDONTWRITEBYTECODE is set Python never will: each start would take a second longer.
# What starts do not load is left out. Files that are no Python are some packages' own business.
"$folder/bin/python" -m compileall -qq -j 0 -x '/(tests?|testing|models|_inductor|_dynamo)/' "$folder/lib" || true
"$folder/bin/python" -m compileall -qq src

# Compiled loops, too: the first plan would else wait for them.
printf 'hippo: compiling (once; a minute or two)\n' >&2
"$folder/bin/python" -c 'from hippo.first_use import prepare_all; prepare_all()' || true
