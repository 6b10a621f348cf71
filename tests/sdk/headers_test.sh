#!/usr/bin/env bash
# The SDK headers compile alone, strictly, in every language level they promise; their layout is the one on record; and
# what should be small is small. usage: headers_test.sh SOURCE
set -euo pipefail
source=$1
include=$source/sdk/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "headers_test: $*" >&2; exit 1; }

compilers=(gcc)
command -v clang >/dev/null && compilers+=(clang) || echo "no clang here: gcc only"
strict=(-Wall -Wextra -Wpedantic -Wpadded -Werror -fsyntax-only "-I$include")
for header in plugin services sharding precision offload checkpoint; do
  echo "#include \"shale/$header.h\"" >"$work/$header.c"
  for compiler in "${compilers[@]}"; do
    "$compiler" -std=c11 "${strict[@]}" "$work/$header.c" || fail "$header.h is not C11 for $compiler"
    for level in 17 20; do
      "$compiler" -x c++ -std=c++$level "${strict[@]}" "$work/$header.c" || fail "$header.h: $compiler C++$level"
    done
  done
done

python3 "$source/tests/sdk/generate_layout.py" "$include" >"$work/layout.h"
diff "$source/tests/sdk/layout.h" "$work/layout.h" >&2 ||
  fail "the layout changed: if only members were appended, run tests/sdk/generate_layout.py sdk/include > \
tests/sdk/layout.h and note it in sdk/CHANGELOG.md"
asserts=$(grep -oE '(LAYOUT|AT)\(shale' "$work/layout.h" | wc -l)
[ "$asserts" -gt 400 ] || fail "only $asserts asserts were generated"
cp "$work/layout.h" "$work/layout.c"
awk -v to="$work/sample" '/^```cpp$/ { on = 1; ++n; next } /^```$/ { on = 0 } on { print > (to n ".cpp") }' \
  "$source/sdk/README.md"
[ -s "$work/sample2.cpp" ] || fail "sdk/README.md does not show a plugin and one with hooks"
for compiler in "${compilers[@]}"; do
  "$compiler" -std=c11 -fsyntax-only "-I$include" "$work/layout.c" || fail "layout for $compiler C11"
  "$compiler" -x c++ -std=c++17 -fsyntax-only "-I$include" "$work/layout.c" || fail "layout for $compiler C++17"
  for plugin in "$source"/examples/smallest_cpp/keep_small.cpp "$source"/sdk/template/plugin.cpp "$work"/sample*.cpp; do
    "$compiler" -x c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "-I$include" "$plugin" ||
      fail "$plugin for $compiler"
  done
  "$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "-I$include" \
    "$source/examples/smallest_c/split.c" || fail "split.c for $compiler"
done

# Nothing whose size depends on the compiler crosses the border.
cat "$include"/shale/*.h | perl -0pe 's@/\*.*?\*/@@gs' >"$work/code.h"
! grep -nwE 'bool|size_t|long|short|int|unsigned|wchar_t|time_t|FILE|enum|union' "$work/code.h" ||
  fail "a type without a fixed width in a header"

at_most() { # lines, file
  local lines
  lines=$(wc -l <"$source/$2")
  [ "$lines" -le "$1" ] || fail "$2 has $lines lines, at most $1"
}
at_most 60 examples/smallest_c/split.c
at_most 40 examples/smallest_cpp/keep_small.cpp
at_most 400 sdk/include/shale/plugin.hpp
echo "headers, $asserts layout asserts and sizes are fine"
