"""The files of a tree, as the rules see them: text, code without comments and literals, includes."""

import functools
import os
import re
from pathlib import Path

CPP = (".c", ".cpp", ".cu", ".h", ".hpp", ".cuh")
HEADERS = (".h", ".hpp", ".cuh")
IGNORED = re.compile(r"^(build.*|outputs|__pycache__|\.git)$")

_TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<separator>(?<=[0-9a-fA-F])'(?=[0-9a-fA-F]))
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    return _TOKENS.sub(lambda m: _blank(m[0]) if m["comment"] else m[0], text)


def without_literals(text):
    """Comments, literals and preprocessor lines become blanks; every other character keeps its place."""
    bare = _TOKENS.sub(lambda m: _blank(m[0]), text)
    return _DIRECTIVE.sub(lambda m: _blank(m[0]), bare)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tree:
    """All files below a root, by their path relative to it with forward slashes."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.paths = sorted(self._walk())

    def _walk(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if not IGNORED.match(f)]
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    yield path.relative_to(self.root).as_posix()

    def under(self, *folders, ends=CPP):
        return [p for p in self.paths if p.endswith(ends) and any(p.startswith(f + "/") for f in folders)]

    @functools.lru_cache(maxsize=None)
    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @functools.lru_cache(maxsize=None)
    def code(self, path):
        return without_literals(self.text(path))

    @functools.lru_cache(maxsize=None)
    def includes(self, path):
        """(line, name as written, path in the tree or None) of each include."""
        bare = without_comments(self.text(path))
        found = []
        for match in _INCLUDE.finditer(bare):
            name = match[1] or match[2]
            found.append((line_of(bare, match.start()), name, self._resolve(path, name, quoted=match[2] is not None)))
        return tuple(found)

    def _resolve(self, path, name, quoted):
        places = [name, "sdk/include/" + name]
        if quoted:
            places.insert(0, os.path.normpath(os.path.join(os.path.dirname(path), name)))
        return next((place for place in places if (self.root / place).is_file()), None)

    @functools.lru_cache(maxsize=None)
    def all_includes(self, path):
        """Names as written of everything that a file includes, through files of the tree too."""
        names, seen, waiting = set(), {path}, [path]
        while waiting:
            for _, name, inner in self.includes(waiting.pop()):
                names.add(name)
                if inner and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
        return frozenset(names), frozenset(seen)
