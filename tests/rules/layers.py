"""Rules about who may include whom, and who may do what."""

import re

C10D = "torch/csrc/distributed/"
MAX_C10D_SOURCES = 3
WHOLE_TORCH = ("torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h")
TORCH = re.compile(r"^(ATen|torch|c10)/")
FMT = re.compile(r"^(spdlog|fmt)/")


def floors(tree):
    """room -> floor, from core/LAYERS."""
    found = {}
    for line in tree.text("core/LAYERS").splitlines():
        words = line.split("#")[0].split()
        for room in words[1:]:
            found[room] = int(words[0])
    return found


def _room(path):
    match = re.match(r"(?:tests/)?core/([^/]+)/", path or "")
    return match[1] if match else None


def _room_includes(tree):
    for path in tree.under("core", "tests/core"):
        for line, name, target in tree.includes(path):
            room = _room(target)
            if room:
                yield path, line, name, _room(path), room


def floors_rule(tree):
    """A file of a room, or of its tests, includes that room and rooms on lower floors."""
    floor = floors(tree)
    for room in sorted({_room(p) for p in tree.under("core")} - floor.keys() - {None}):
        yield f"core/{room}: not in core/LAYERS; give it a floor"
    for path, line, name, room, other in _room_includes(tree):
        if room != other and room in floor and other in floor and floor[other] >= floor[room]:
            yield (f'{path}:{line}: "{name}": {room} stands on floor {floor[room]} and may not use {other} on floor '
                   f"{floor[other]}")
    for path in tree.under("core", ends="/CMakeLists.txt"):
        match = re.search(r"shale_room\((\w+)[^)]*?DEPENDS\s+([\w\s]*)", tree.text(path))
        words = match[2].split() if match else []
        for word in words:
            if word in ("LIBS", "SOURCES", "PRIVATE_LIBS"):
                break
            if floor.get(word, -1) >= floor.get(match[1], 99):
                yield f"{path}: {match[1]} on floor {floor[match[1]]} DEPENDS on {word} on floor {floor[word]}"


def circles_rule(tree):
    """No chain of includes leads from a room back to itself."""
    uses = {}
    for path, _, _, room, other in _room_includes(tree):
        if room != other and path.startswith("core/"):
            uses.setdefault(room, set()).add(other)
    done = set()

    def walk(room, chain):
        if room in chain:
            yield "core: the rooms " + " -> ".join(chain[chain.index(room):] + [room]) + " include each other"
        elif room not in done:
            for other in sorted(uses.get(room, ())):
                yield from walk(other, chain + [room])
            done.add(room)

    for room in sorted(uses):
        yield from walk(room, [])


def sdk_users_rule(tree):
    """Only loader/ and its tests know the plugin ABI."""
    for path in tree.under("core", "tests/core"):
        if _room(path) != "loader":
            for line, name, target in tree.includes(path):
                if name.startswith("shale/") or (target or "").startswith("sdk/"):
                    yield f'{path}:{line}: "{name}": only core/loader includes headers of sdk/'


def plugins_rule(tree):
    """Plugins, examples and the SDK stand on sdk/ alone: no core, no torch, no other plugin."""
    for path in tree.under("plugins", "examples", "sdk"):
        home = "/".join(path.split("/")[:2]) + "/"
        for line, name, target in tree.includes(path):
            inside = target and (target.startswith(("sdk/", home)))
            if name.startswith("core/") or TORCH.match(name) or (target and not inside):
                yield f'{path}:{line}: "{name}": a plugin includes sdk/ only'


_ONLY_IN = (
    ("config", re.compile(r"\b(?:secure_)?getenv\s*\("), "reads the environment"),
    ("loader", re.compile(r"\bdlm?open\s*\("), "opens libraries"),
)


def only_in_rule(tree):
    """The environment is read in config/, libraries are opened in loader/."""
    for room, pattern, what in _ONLY_IN:
        for path in tree.under("core", "plugins", "sdk/include"):
            if _room(path) != room:
                for number, line in enumerate(tree.code(path).splitlines(), 1):
                    if pattern.search(line):
                        yield f"{path}:{number}: only core/{room} {what}"
    for path in tree.under("core"):
        for line, name, _ in tree.includes(path):
            if name.startswith("boost/dll") and _room(path) != "loader":
                yield f"{path}:{line}: <{name}>: only core/loader opens libraries"


def torch_rule(tree):
    """Torch headers stay narrow, c10d in few sources, and never beside spdlog, for both bring their own fmt."""
    sources = tree.under("core", ends=(".cpp", ".cu"))
    slow = [p for p in sources if any(name.startswith(C10D) for name in tree.all_includes(p)[0])]
    if len(slow) > MAX_C10D_SOURCES:
        yield (f"core: {len(slow)} sources include c10d headers, which cost 17 s each; at most {MAX_C10D_SOURCES} may: "
               f"{' '.join(slow)}")
    for path in tree.under("core"):
        for line, name, _ in tree.includes(path):
            if name in WHOLE_TORCH:
                yield f"{path}:{line}: <{name}>: include <ATen/core/Tensor.h> and <ATen/ops/x.h> per operator"
        names, _ = tree.all_includes(path)
        if any(FMT.match(n) for n in names) and any(TORCH.match(n) for n in names):
            yield f"{path}: includes both spdlog (or fmt) and torch, which brings another fmt"


RULES = {
    "floors": floors_rule,
    "circles": circles_rule,
    "sdk_users": sdk_users_rule,
    "plugins": plugins_rule,
    "only_in": only_in_rule,
    "torch": torch_rule,
}
