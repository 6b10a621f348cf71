#!/usr/bin/env bash
# Installs shale into a folder and builds the example plugins against that alone, as an author outside would:
# build.sh SOURCE BUILD OUT leaves OUT/<name>.so and has the conformance kit pass on each.
set -euo pipefail
source=$1 build=$2 out=$3
fail() { echo "build.sh: $*" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"
cmake --install "$build" --prefix "$out/prefix" >"$out/install.log" || { cat "$out/install.log"; fail "no install"; }
for example in zeropp diloco powersgd; do
  cp -r "$source/examples/$example" "$out/$example" # a copy: nothing of the repository is reachable
  cmake -G Ninja -S "$out/$example" -B "$out/$example/build" -DCMAKE_PREFIX_PATH="$out/prefix" \
    -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null || fail "$example: configure"
  cmake --build "$out/$example/build" >"$out/$example.log" || { cat "$out/$example.log"; fail "$example: build"; }
  cp "$out/$example/build/$example.so" "$out/"
  python3 "$source/tests/rules/symbols.py" "$out/$example.so"
  "$out/prefix/bin/shale-conform" "$out/$example.so" || fail "$example does not conform"
  "$out/prefix/bin/shale" plugin info "$out/$example.so" >"$out/$example.txt" || fail "shale plugin info $example"
done
echo "built three plugins against $out/prefix alone; all conform"
