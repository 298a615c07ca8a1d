#!/usr/bin/env bash
# Makes a virtual environment from a hashed lock: setup.sh PYTHON FOLDER LOCK. Run again, it only brings what changed.
set -euo pipefail
python=$1 folder=$2 lock=$3

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Tidegate needs Python 3.11 or newer and '$python' is not. Name one: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
fi
if [ ! -x "$folder/bin/python" ]; then
    echo "Making $folder"
    "$python" -m venv "$folder"
fi
echo "Installing the versions of $lock into $folder (a minute the first time)"
"$folder/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes --requirement "$lock"
