"""Finds the functions of a C or C++ file by its braces: name, parameters, lines. No macros are expanded."""

import re
from collections import namedtuple

from sources import line_of

# lines is 0 for a declaration without a body.
Function = namedtuple("Function", "name line lines parameters")

_WRAPPERS = re.compile(r"\b(?:__attribute__|alignas|decltype|noexcept|explicit|_Alignas)\s*(?=\()")
_TYPE = re.compile(r"\b(?:class|struct|union|enum)\b")
_NOT_A_FUNCTION = re.compile(r"^\s*(?:using|typedef|static_assert|_Static_assert|friend\s+class|return)\b")
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def _close(text, begin):
    """Position of the bracket that closes the one at begin, or the end of the text."""
    opening, closing, depth = text[begin], _PAIRS[text[begin]], 0
    for i in range(begin, len(text)):
        if text[i] == opening:
            depth += 1
        elif text[i] == closing and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i
    return len(text) - 1


def _blank(text, begin, end):
    return text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]


def _plain(head):
    """The head of a declaration without templates, attributes and operators that would look like something else."""
    head = re.sub(r"operator\s*\(\s*\)", lambda m: "operator_".ljust(len(m[0]), "_"), head)
    head = re.sub(r"operator\s*[-+*/%^&|~!=<>,\[\]]+", lambda m: "operator".ljust(len(m[0]), "_"), head)
    head = re.sub(r"[=!<>]=", "  ", head)
    head = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", lambda m: " " * len(m[0]), head)
    while match := re.search(r"\btemplate\s*(?=<)", head):
        head = _blank(head, match.start(), _close(head, match.end()) + 1)
    while match := re.search(r"\[\[", head):
        head = _blank(head, match.start(), _close(head, match.start()) + 1)
    while match := _WRAPPERS.search(head):
        head = _blank(head, match.start(), _close(head, match.end()) + 1)
    return head


def _count(parameters):
    """Commas at the outermost level, plus one."""
    if parameters.strip() in ("", "void"):
        return 0
    depth, commas = 0, 0
    for i, c in enumerate(parameters):
        if c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and parameters[i - 1] != "-"):
            depth -= 1
        elif c == "," and depth == 0:
            commas += 1
    return commas + 1


def _signature(head):
    """(name, position of the name, parameters, rest) of a head that declares a function, else None."""
    plain = _plain(head)
    outside = (m for m in re.finditer(r"(~?[A-Za-z_]\w*)\s*\(", plain)
               if plain.count("<", 0, m.start()) == plain.count(">", 0, m.start()))
    match = next(outside, None)
    if not match or "=" in plain[: match.start()] or _NOT_A_FUNCTION.match(plain):
        return None
    end = _close(plain, match.end() - 1)
    return match[1], match.start(1), head[match.end() : end], plain[end + 1 :]


def _kind(head, parens):
    """What a brace after this head opens: 'function', 'scope' (namespace, class) or 'init'."""
    plain = _plain(head)
    if parens > 0:
        return "init"
    if re.search(r"\bnamespace\b", plain) or re.search(r"\bextern\s*$", plain):
        return "scope"
    signature = _signature(head)
    if signature:
        in_list = re.search(r":", signature[3].replace("::", "  "))
        return "init" if in_list and re.search(r"[\w>]\s*$", plain) else "function"
    return "scope" if _TYPE.search(plain) and "=" not in plain else "init"


class _Finder:
    def __init__(self, code):
        self.code, self.found = code, []
        self.stack = []  # kind, position of the opening brace, head's start
        self.head, self.parens = 0, 0

    def run(self):
        for i, c in enumerate(self.code):
            if c in "{};":
                getattr(self, {"{": "_open", "}": "_shut", ";": "_end"}[c])(i)
            elif c in "()" and not self._inside("function"):
                self.parens += 1 if c == "(" else -1
        return self.found

    def _inside(self, kind):
        return any(entry[0] == kind for entry in self.stack)

    def _open(self, i):
        nested = self._inside("function") or self._inside("init")
        kind = "block" if nested else _kind(self.code[self.head : i], self.parens)
        self.stack.append((kind, i, self.head))
        if kind == "scope":
            self.head = i + 1

    def _shut(self, i):
        if not self.stack:
            return
        kind, opened, head = self.stack.pop()
        if kind == "function":
            self._add(head, opened, i)
        if kind in ("function", "scope"):
            self.head = i + 1

    def _end(self, i):
        if not self._inside("function") and not self._inside("init") and self.parens == 0:
            self._add(self.head, i, None)
            self.head = i + 1

    def _add(self, head, opened, end):
        signature = _signature(self.code[head:opened])
        if signature:
            line = line_of(self.code, head + signature[1])
            lines = line_of(self.code, end) - line + 1 if end is not None else 0
            self.found.append(Function(signature[0], line, lines, _count(signature[2])))


def functions(code):
    """All functions of code as sources.without_literals gives it, declarations too."""
    return _Finder(code).run()
