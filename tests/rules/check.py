#!/usr/bin/env python3
"""Checks a tree against one rule, or all that need no compiler: check.py ROOT [RULE]. Exit code 1 and the reasons."""

import sys

import layers
import sizes
from sources import Tree

RULES = {**layers.RULES, **sizes.RULES}


def main(root, *names):
    tree = Tree(root)
    found = [f"{name}: {reason}" for name in names or RULES for reason in RULES[name](tree)]
    print("\n".join(found) or f"{len(tree.paths)} files keep to {', '.join(names or RULES)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
