#!/usr/bin/env bash
# Sets up, builds everything in build/ and runs all tests. Arguments go to ctest: tests/run.sh -R rules
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch=$(tests/setup.sh test)
export CCACHE_DIR=${CCACHE_DIR:-${SHALE_CACHE:-$HOME/.cache/shale}/ccache}
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 # another clone finds the same objects
cmake -G Ninja -S . -B build -DLIBTORCH_ROOT="$torch" -DSHALE_TESTS=ON
cmake --build build --parallel "$(nproc)"
ctest --test-dir build --parallel 2 --output-on-failure --no-tests=error "$@"
