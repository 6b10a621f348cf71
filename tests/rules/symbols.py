#!/usr/bin/env python3
"""A built plugin exports the entry function and nothing else: symbols.py FILE.so ..."""

import subprocess
import sys

ENTRY = "shale_plugin_entry_v1"


def wrong_symbols(file):
    """The reason why a library is not as it should be, or None."""
    result = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", file], capture_output=True, text=True)
    if result.returncode != 0:
        return f"{file}: nm failed: {result.stderr.strip()}"
    names = sorted(line.split()[0] for line in result.stdout.splitlines() if line.strip())
    if names == [ENTRY]:
        return None
    return f"{file}: exports {' '.join(names) or 'nothing'}; {ENTRY} alone is right (build it with shale_add_plugin)"


def main(*files):
    if not files:
        print("no plugin was built, so nothing was checked")
        return 1
    reasons = [r for r in map(wrong_symbols, files) if r]
    print("\n".join(reasons) or f"{len(files)} plugins export {ENTRY} alone")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
