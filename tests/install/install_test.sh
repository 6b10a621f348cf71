#!/usr/bin/env bash
# Installs, moves the prefix, and builds and runs the example plugins against it alone: install_test.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "no install"; }
mkdir "$work/moved here" # a path with a blank, as users have them
prefix="$work/moved here/prefix"
mv "$work/first" "$prefix"
for file in bin/shale include/shale/plugin.h include/shale/plugin.hpp lib/cmake/shale/shaleConfig.cmake \
  lib/cmake/shale/plugin.map lib/shale/plugins/sharding_full_shard.so; do
  [ -e "$prefix/$file" ] || fail "$file was not installed"
done
! grep -rlF -e "$source" -e "$work/first" "$prefix/lib/cmake" "$prefix/include" ||
  fail "the package names the source tree"

# Out of tree, from copies: nothing of the repository is reachable.
for example in smallest_c smallest_cpp; do
  cp -r "$source/examples/$example" "$work/$example"
  cmake -S "$work/$example" -B "$work/$example/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null ||
    fail "$example: configure"
  cmake --build "$work/$example/build" >/dev/null || fail "$example: build"
done
gcc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -I"$prefix/include" \
  "$work/smallest_c/split.c" -o "$work/split.so"
g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -I"$prefix/include" \
  -Wl,--version-script="$prefix/lib/cmake/shale/plugin.map" "$work/smallest_cpp/keep_small.cpp" -o "$work/keep_small.so"
python3 "$source/tests/rules/symbols.py" "$work/split.so" "$work/keep_small.so" "$work/smallest_c/build/split.so" \
  "$work/smallest_cpp/build/keep_small.so" "$prefix"/lib/shale/plugins/*.so
lines=$(wc -l <"$work/smallest_c/split.c")
[ "$lines" -le 60 ] || fail "the smallest plugin in C has $lines lines, at most 60"

# The moved binary finds its own plugins and the new ones.
cd "$work"
shale="$prefix/bin/shale"
"$shale" version >/dev/null || fail "shale version"
"$shale" plugin list >list.txt && grep -q full_shard list.txt || fail "shale plugin list does not name full_shard"
"$shale" plugin info "$work/split.so" >info.txt && grep -q ways info.txt ||
  fail "shale plugin info does not print the options"

cat "$source"/core/*/*.h >text.txt
train() { # plugin, option
  cat >run.toml <<TOML
[job]
dump_folder = "out"
overwrite = true
[training]
dataset = "text"
dataset_path = "text.txt"
seq_len = 32
local_batch_size = 1
steps = 2
[sharding]
plugin = "$1"
[sharding.options]
$2
TOML
  "$shale" train run.toml --nproc 2 || fail "training with $1 failed"
  [ "$(grep -c '"loss"' out/metrics.jsonl)" -ge 1 ] || fail "training with $1 wrote no loss"
}
train ./split.so "ways = 2"
train ./smallest_cpp/build/keep_small.so "limit = 1000"
echo "installed, moved, built two plugins in two ways and trained with them"
