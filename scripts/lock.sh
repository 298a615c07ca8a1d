#!/usr/bin/env bash
# Resolves every lock in requirements/ anew, for all platforms, with hashes and without the address of an index.
# Versions that are locked already stay, unless an argument such as --upgrade says otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
    local out=$1
    shift
    .cache/venv-generator/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-annotate --no-header --output-file "requirements/$out" "$@"
}
compile dev.txt pyproject.toml --extra dev "$@"
compile server.txt pyproject.toml --extra server --extra nvml --extra dashboard --constraint requirements/dev.txt "$@"
compile generator.txt requirements/generator.in "$@"
compile relay.txt requirements/relay.in "$@"
