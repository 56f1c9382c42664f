#!/bin/sh
# Writes requirements/*.txt: one universal resolution for Python 3.11 and later, exact versions with hashes, and no word
# about where they came from, so that any index with the same files will do.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }

compile() {
    out=$1; shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links "$@" --output-file "requirements/$out.txt"
}

# `all` is the whole set; the smaller locks take their versions from it, so that one .venv can serve every target.
compile all pyproject.toml --all-extras --group dev --group task-image
compile dev pyproject.toml --extra controller --group dev --constraint requirements/all.txt
compile controller pyproject.toml --extra controller --group build --constraint requirements/all.txt
compile deployed pyproject.toml --extra controller --extra google --group build --constraint requirements/all.txt
compile base pyproject.toml --constraint requirements/all.txt
compile task-image pyproject.toml --group task-image --constraint requirements/all.txt
compile build --group pyproject.toml:build --constraint requirements/all.txt
