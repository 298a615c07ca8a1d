#!/usr/bin/env bash
# Generates the Python of proto/ with the pinned generator. With --check it writes to a temporary folder and compares.
# The generator lives in an environment of its own: what it writes must import beside the older protobuf of an engine.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${GENERATOR_BIN:-.cache/venv-generator/bin}
packages=$(find proto/admission -name '*.proto' -printf '%h\n' | sort -u | sed 's#^proto/##')

generate() {
    local out=$1 package
    for package in $packages; do
        compile proto/"$package"/*.proto -- --python_out="$out" --mypy_out="quiet:$out"
        # Only a file with services has something to say to gRPC.
        services=$(grep -l '^service ' proto/"$package"/*.proto || true)
        # shellcheck disable=SC2086 - our file names have no spaces
        [ -z "$services" ] || compile $services -- --grpc_python_out="$out" --mypy_grpc_out="quiet:$out"
    done
}

compile() {
    local files=()
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    PATH="$PWD/$bin:$PATH" "$bin/python" -m grpc_tools.protoc -Iproto "$@" "${files[@]}"
}

if [ "${1:-}" != "--check" ]; then
    generate .
    exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
for package in $packages; do
    if ! diff -ru --exclude=__init__.py --exclude=__pycache__ "$fresh/$package" "$package"; then
        echo "$package is not what proto/$package says: run 'make proto' and commit the result" >&2
        exit 1
    fi
done
echo "Generated code is current"
