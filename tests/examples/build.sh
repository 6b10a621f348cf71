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
  "$out/prefix/bin/shale" plugin info "$out/$example.so" >"$out/$example.txt" || fail "shale plugin info $example"
done

# The kit, with the default options and at the edges. A gradient of 4 bits is off by a 14th of the largest in its block.
conform() { # example, options of the kit
  local file=$out/$1.so
  "$out/prefix/bin/shale-conform" "${@:2}" "$file" >"$out/conform.log" || { cat "$out/conform.log"; fail "$*"; }
}
conform zeropp --tolerance 0.1
conform zeropp --option gradient_bits=8
conform zeropp --tolerance 0.1 --option hpz=true --option align=1 --option weight_block=2 --option gradient_block=4096
conform zeropp --tolerance 0.1 --option group_size=1 --option reduce_at=boundary --option scales=fp32
conform powersgd
conform powersgd --option rank=1 --option min_numel=1 --option start_step=1
conform powersgd --option rank=8 --option min_numel=1 --option start_step=1
conform diloco
conform diloco --option every=3 --option delay=2 --option streaming=true --option mix=0.5
conform diloco --option every=1 --option outer_lr=1 --option outer_momentum=0 --option island_size=2
conform diloco --option nesterov=false --option every=2
echo "built three plugins against $out/prefix alone; all conform"
