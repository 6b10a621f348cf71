"""Rules about sizes, names of files and words."""

import ast
import re

from functions import functions
from sources import HEADERS, line_of

MAX_FILE, MAX_FUNCTION, MAX_PARAMETERS, MAX_COLUMNS, MAX_README, MAX_TOP_CMAKE = 400, 45, 5, 120, 40, 80
CODE = ("core", "plugins", "sdk", "examples", "tests", "configs")
TOP_LEVEL = {"CMakeLists.txt", "core", "plugins", "sdk", "configs", "tests", "examples", "README.md"}
SOURCES = (".c", ".cpp", ".cu", ".h", ".hpp", ".cuh", ".py", ".sh", ".cmake", "CMakeLists.txt", ".toml")


def _python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            needed = [a for a in node.args.args if a.arg != "self"][: len(node.args.args) - len(node.args.defaults)]
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1, len(needed)


def files_rule(tree):
    """Files have at most 400 lines of at most 120 columns."""
    for path in tree.under(*CODE, ends=SOURCES) + ["CMakeLists.txt"]:
        lines = tree.text(path).splitlines()
        limit = MAX_TOP_CMAKE if path == "CMakeLists.txt" else MAX_FILE
        if len(lines) > limit:
            yield f"{path}: {len(lines)} lines, at most {limit}; split it by what a reader looks for"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}"


def functions_rule(tree):
    """Functions have at most 45 lines and 5 parameters."""
    for path in tree.under(*CODE):
        for f in functions(tree.code(path)):
            if f.lines > MAX_FUNCTION:
                yield f"{path}:{f.line}: {f.name} has {f.lines} lines, at most {MAX_FUNCTION}"
            if f.parameters > MAX_PARAMETERS:
                yield f"{path}:{f.line}: {f.name} has {f.parameters} parameters, at most {MAX_PARAMETERS}: use a struct"
    for path in tree.under(*CODE, ends=".py"):
        for name, line, lines, parameters in _python_functions(tree.text(path)):
            if lines > MAX_FUNCTION or parameters > MAX_PARAMETERS:
                yield f"{path}:{line}: {name} has {lines} lines and {parameters} parameters"


def readmes_rule(tree):
    """Each room and each plugin says what it is; a room in at most 40 lines."""
    rooms = sorted({"/".join(p.split("/")[:2]) for p in tree.under("core", "plugins")})
    for folder in rooms:
        readme = folder + "/README.md"
        if readme not in tree.paths:
            yield f"{readme}: not there; say what {folder} is, its dependency arrow, why it is so, how to read it"
        elif folder.startswith("core/") and len(tree.text(readme).splitlines()) > MAX_README:
            yield f"{readme}: {len(tree.text(readme).splitlines())} lines, at most {MAX_README}"
    for readme in ("README.md", "core/README.md", "sdk/README.md"):
        if readme not in tree.paths:
            yield f"{readme}: not there"


def top_level_rule(tree):
    """Exactly the agreed entries at the root, dotfiles aside."""
    present = {p.split("/")[0] for p in tree.paths if not p.startswith(".")}
    for name in sorted(present - TOP_LEVEL):
        yield f"{name}: not one of the agreed entries at the root: {' '.join(sorted(TOP_LEVEL))}"
    for name in sorted(TOP_LEVEL - present):
        yield f"{name}: not there"


# Put together from halves, so that this file does not hold what it looks for.
_WORDS = re.compile(
    "|".join(a + b for a, b in (
        ("/wor", "k/"), ("/far", "m/"), ("bash_", "jobs"), ("this ses", "sion"), ("cla", "ude"), ("chat", "gpt"),
        ("developers.? ses", "sion"), ("/tmp/b", "/"), ("/tmp/bri", "ef"), ("/opt/whe", "els"), (r"pypi\.", "org"),
        (r"pythonhos", r"ted\."), (r"deb\.deb", r"ian\.org"), ("/root", "/"))),
    re.IGNORECASE)


def words_rule(tree):
    """Nothing of the machine or the way it was written stays in the project."""
    for path in tree.paths:
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = _WORDS.search(line)
            if match:
                yield f"{path}:{number}: '{match[0]}' does not belong in the project"


_REGISTRATION = "registration by a static constructor"
_STATICS = (
    (re.compile(r"\b(?:get_)?instance\s*\(\s*\)"), "a singleton: pass the object to who needs it"),
    (re.compile(r"\b(?:TORCH_LIBRARY\w*|C10_REGISTER_\w+|REGISTER_\w+)\s*\("), _REGISTRATION),
    (re.compile(r"__attribute__\s*\(\(\s*(?:__)?constructor"), _REGISTRATION),
    (re.compile(r"\bstatic\s+(?:const\s+)?(?:bool|int|auto)\s+\w+\s*=\s*\w*register\w*\s*\("), _REGISTRATION),
)
# A function of a header that hands out its own static object. Inside one .cpp it is that file's business.
_HANDED_OUT = re.compile(
    r"\bstatic\s+(?!const\b|constexpr\b)[\w:<>,\s*]+?[\s&*](\w+)\s*(?:;|=[^;]*;|\{[^;]*\};|\([^;]*\);)"
    r"\s*return\s+&?\*?\1\s*;")


def statics_rule(tree):
    """No singletons and no registration by static constructors."""
    for path in tree.under("core", "plugins", "sdk"):
        code = tree.code(path)
        patterns = list(_STATICS)
        if path.endswith(HEADERS):
            patterns.append((_HANDED_OUT, "a singleton: pass the object to who needs it"))
        for pattern, what in patterns:
            for match in pattern.finditer(code):
                yield f"{path}:{line_of(code, match.start())}: {what}"


def build_files_rule(tree):
    """Source lists are written out, and headers are guarded by #pragma once."""
    for path in tree.under(*CODE, ends=("CMakeLists.txt", ".cmake")) + ["CMakeLists.txt"]:
        if re.search(r"file\s*\(\s*GLOB\S*\s+\w+\s+[^)]*\.(c|cpp|cu|h)\b", tree.text(path)):
            yield f"{path}: lists sources by GLOB; write them out"
    for path in tree.under("core", "sdk", "plugins", ends=HEADERS):
        if not re.search(r"^#pragma once$", tree.text(path), re.MULTILINE):
            yield f"{path}: no #pragma once"


_TYPE = re.compile(r"^(?:class|struct|enum class|enum|union) (\w+)(?: final)?(?: : [^{;]+)?\s*\{", re.MULTILINE)


def one_name_rule(tree):
    """A type has one definition in the whole core: two of one name are one type to the linker, silently."""
    homes = {}
    for path in tree.under("core", ends=HEADERS):
        if "/opaque/" in path:
            continue  # stands in for the headers of another project, in its namespace
        for match in _TYPE.finditer(tree.code(path)):
            homes.setdefault(match[1], []).append(path)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"{name} is defined in {' and '.join(paths)}; give one of them another name"


RULES = {
    "files": files_rule,
    "functions": functions_rule,
    "readmes": readmes_rule,
    "top_level": top_level_rule,
    "words": words_rule,
    "statics": statics_rule,
    "build_files": build_files_rule,
    "one_name": one_name_rule,
}
