#!/usr/bin/env python3
"""Compiles every header by itself: those of core as C++20, those of the SDK in each language they promise.

headers.py ROOT CACHE [COMPILER FLAG ...]    the flags say where torch is. A header that compiled once is not tried
again until it, a header of the tree that it includes, or a flag changes: CACHE holds a file per success.
"""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import HEADERS, Tree

STRICT = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]


def jobs(tree):
    """(header, compiler, flags) of everything to compile; headers of a CUDA half need its toolkit and are left out."""
    for path in tree.under("core", ends=HEADERS):
        if "/cuda/" not in path and "/nccl/" not in path:
            yield path, "g++", ["-x", "c++", "-std=c++20"]
    for path in tree.under("sdk/include", ends=HEADERS):
        if path.endswith(".h"):
            yield path, "gcc", ["-x", "c", "-std=c11", "-Wpedantic"]
            yield path, "g++", ["-x", "c++", "-std=c++17"]
        yield path, "g++", ["-x", "c++", "-std=c++20"]


def _key(tree, path, command):
    digest = hashlib.sha256(repr(command).encode())
    for inner in sorted(tree.all_includes(path)[1]):
        digest.update(inner.encode() + tree.text(inner).encode())
    return digest.hexdigest()


def compile_alone(tree, cache, job, flags):
    """The reason why a header does not compile alone, or None."""
    path, compiler, language = job
    command = [compiler, *language, *STRICT, "-I.", "-Isdk/include", "-include", path, *flags, "/dev/null"]
    done = cache / _key(tree, path, command)
    if done.exists():
        return None
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
    if result.returncode == 0:
        done.touch()
        return None
    return f"{path} does not compile alone ({' '.join(language[2:])}):\n{result.stderr[:1500]}"


def main(root, cache, *flags):
    tree, cache = Tree(root), Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    work = list(jobs(tree))
    with ThreadPoolExecutor(2) as pool:
        reasons = [r for r in pool.map(lambda job: compile_alone(tree, cache, job, flags), work) if r]
    print("\n".join(reasons) or f"{len(work)} compilations of headers alone")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
