#!/usr/bin/env python3
"""Plants violations in a small tree: each rule must find its own, and find nothing in the tree as it should be."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import check
import headers
import symbols
from functions import functions
from sources import Tree, without_literals

GOOD = {
    "CMakeLists.txt": "project(x)\n", "README.md": "x\n", "core/README.md": "x\n", "sdk/README.md": "x\n",
    "core/LAYERS": "# floors\n0 base\n1 config device\n2 comm\n5 loader\n",
    "core/base/README.md": "x\n", "core/config/README.md": "x\n", "core/device/README.md": "x\n",
    "core/comm/README.md": "x\n", "core/loader/README.md": "x\n", "plugins/sharding_x/README.md": "x\n",
    "core/base/error.h": "#pragma once\n#include <string>\nint error(std::string);\nstruct Error {};\n",
    "core/config/env.cpp": '#include "core/base/error.h"\nauto x() { return getenv("X"); }\n',
    "core/device/device.h": '#pragma once\n#include "core/base/error.h"\n',
    "core/comm/CMakeLists.txt": "shale_room(comm SOURCES group.cpp DEPENDS base device LIBS x)\n",
    "core/comm/group.cpp": '#include "core/device/device.h"\n#include "core/base/error.h"\n',
    "core/loader/open.cpp": '#include "shale/plugin.h"\nvoid* o() { return dlopen("x", 1); }\n',
    "sdk/include/shale/plugin.h": "#pragma once\n#include <stdint.h>\n",
    "plugins/sharding_x/plugin.c": '#include "shale/plugin.h"\n',
    "configs/a.toml": "a = 1\n", "examples/a.sh": "true\n", "tests/run.sh": "true\n",
}
LONG = "x" * 121

# rule, file, what stands in it, a part of the reason
PLANTED = [
    ("floors", "core/base/up.cpp", '#include "core/comm/group.h"\n', None),  # not a file of the tree: no room
    ("floors", "core/base/up.cpp", '#include "core/config/env.cpp"\n', "stands on floor 0 and may not use config"),
    ("floors", "core/device/side.h", '#pragma once\n#include "../config/env.cpp"\n', "may not use config on floor 1"),
    ("floors", "tests/core/base/a_test.cpp", '#include "core/device/device.h"\n', "may not use device"),
    ("floors", "core/other/a.h", "#pragma once\n", "core/other: not in core/LAYERS"),
    ("floors", "core/device/CMakeLists.txt", "shale_room(device SOURCES a\n DEPENDS base comm)\n", "comm on floor 2"),
    ("circles", "core/device/back.h", '#pragma once\n#include "core/comm/c.h"\n', None),
    ("circles", "core/device/back.cpp", '#include "core/comm/group.cpp"\n', "comm -> device -> comm"),
    ("sdk_users", "core/comm/a.cpp", "#include <shale/plugin.h>\n", "only core/loader"),
    ("sdk_users", "core/comm/a.cpp", '// #include "shale/plugin.h"\n', None),
    ("sdk_users", "tests/core/loader/a_test.cpp", '#include "shale/plugin.h"\n', None),
    ("plugins", "plugins/sharding_y/plugin.cpp", '#include "core/base/error.h"\n', "sdk/ only"),
    ("plugins", "plugins/sharding_y/plugin.cpp", '#include "../sharding_x/plugin.c"\n', "sdk/ only"),
    ("plugins", "examples/y/plugin.cpp", "#include <ATen/core/Tensor.h>\n", "sdk/ only"),
    ("only_in", "core/comm/a.cpp", 'auto a = std::getenv("HOME");\n', "only core/config reads the environment"),
    ("only_in", "core/comm/a.cpp", "// getenv(x) is not called here\n", None),
    ("only_in", "core/comm/a.cpp", "auto a = dlopen(path, 2);\n", "only core/loader opens libraries"),
    ("only_in", "core/comm/a.cpp", "#include <boost/dll.hpp>\n", "only core/loader opens libraries"),
    ("torch", "core/comm/a.cpp", "#include <torch/torch.h>\n", "per operator"),
    ("torch", "core/comm/a.h", "#pragma once\n#include <spdlog/spdlog.h>\n", None),
    ("torch", "core/comm/a.cpp", '#include <fmt/core.h>\n#include <c10/core/Device.h>\n', "another fmt"),
    ("files", "core/comm/a.cpp", "int x;\n" * 401, "401 lines"),
    ("files", "core/comm/a.cpp", LONG, "121 columns"),
    ("files", "CMakeLists.txt", "\n" * 81, "81 lines, at most 80"),
    ("functions", "core/comm/a.cpp", "int f() {\n" + "g();\n" * 44 + "}\n", "f has 46 lines"),
    ("functions", "core/comm/a.cpp", "int f() {\n" + "g();\n" * 43 + "}\n", None),
    ("functions", "core/comm/a.h", "void f(int a, int b, int c, int d, int e, int g = h(1, 2));\n", "6 parameters"),
    ("functions", "core/comm/a.h", "void f(int a, map<int, int> b, int c, int d, int e);\n", None),
    ("functions", "tests/a.py", "def f():\n" + "    g()\n" * 45, "46 lines"),
    ("readmes", "plugins/sharding_y/plugin.c", "\n", "plugins/sharding_y/README.md: not there"),
    ("readmes", "core/base/README.md", "x\n" * 41, "41 lines, at most 40"),
    ("top_level", "docs/a.md", "x\n", "docs: not one of the agreed entries"),
    ("top_level", ".clang-format", "x\n", None),
    ("top_level", "build/a.md", "x\n", None),
    ("words", "core/base/README.md", "see /wo" + "rk/x\n", "does not belong"),
    ("words", "core/base/README.md", "net/worker/x\n", None),
    ("statics", "core/comm/a.h", "X& x() {\n  static X one;\n  return one;\n}\n", "a singleton"),
    ("statics", "core/comm/a.h", "auto x = Registry::instance();\n", "a singleton"),
    ("statics", "core/comm/a.cpp", "static const bool done = register_plugin(3);\n", "static constructor"),
    ("statics", "core/comm/a.cpp", "const int& x() {\n  static const int one = 1;\n  return one;\n}\n", None),
    ("build_files", "core/comm/CMakeLists.txt", "file(GLOB sources *.cpp)\n", "GLOB"),
    ("build_files", "core/comm/a.h", "int x;\n", "no #pragma once"),
    ("one_name", "core/comm/a.h", "class Error final : public X {};\n", "Error is defined in core/base/error.h and"),
    ("one_name", "core/comm/a.cpp", "class Error {};\n", None),
    ("one_name", "core/comm/a.h", "class Error;\n  struct Error { };\n", None),
]

CODE = """
namespace a { namespace b {
#define MACRO(x) { { x
struct S : Base<int> {
  S(int a, int b) noexcept : x_{a}, y_(b) {
    if (a) { return; }
  }
  bool operator==(const S& other) const { return true; }
  int operator()(int a, int b, int c) const;
  std::function<void(int, int)> f = [](int, int) {};
  virtual void pure(std::map<int, int> m, const char* s = "a,b(c{") = 0;
  int x_{0};
};
enum class E : int { a, b };
template <typename T = int, typename U = std::pair<T, T>>
auto g(T t, U u) -> std::vector<T> {
  auto l = [&](int x) { return x; };
  return {l(1'000), '{', R"(})"};
}
constexpr int kTable[] = {1, 2, 3};
__attribute__((__format__(__printf__, 1, 2))) static inline void p(const char* s, ...) { (void)s; }
}  // namespace b
extern "C" { int c(void) { return 0; } }
}
"""


class Rules(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for path, text in GOOD.items():
            self.write(path, text)

    def write(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def test_a_good_tree_passes(self):
        for name, rule in check.RULES.items():
            self.assertEqual([], list(rule(Tree(self.folder))), name)

    def test_each_rule_has_a_planted_violation(self):
        self.assertEqual(set(check.RULES), {rule for rule, _, _, reason in PLANTED if reason})

    def test_planted_violations_are_found(self):
        for rule, path, text, reason in PLANTED:
            with self.subTest(rule=rule, path=path, text=text[:60]):
                self.write(path, text)
                found = "\n".join(check.RULES[rule](Tree(self.folder)))
                if reason:
                    self.assertIn(reason, found)
                else:
                    self.assertEqual("", found)
                (self.folder / path).unlink()
                if path in GOOD:
                    self.write(path, GOOD[path])

    def test_c10d_headers_in_few_sources(self):
        self.write("core/comm/c10d.h", "#pragma once\n#include <torch/csrc/distributed/c10d/Backend.hpp>\n")
        for i in range(3):
            self.write(f"core/comm/{i}.cpp", '#include "core/comm/c10d.h"\n')
        self.assertEqual([], list(check.RULES["torch"](Tree(self.folder))))
        self.write("core/comm/3.cpp", '#include "core/comm/c10d.h"\n')
        self.assertIn("4 sources", "\n".join(check.RULES["torch"](Tree(self.folder))))

    def test_headers_alone(self):
        jobs = {job[0]: job for job in headers.jobs(Tree(self.folder))}
        cache = self.folder / "build-cache"
        cache.mkdir()
        self.assertIsNone(headers.compile_alone(Tree(self.folder), cache, jobs["core/base/error.h"], []))
        self.assertEqual(1, len(list(cache.iterdir())))
        self.write("core/base/error.h", "#pragma once\nint error(std::string);\n")
        self.assertIn("does not compile alone",
                      headers.compile_alone(Tree(self.folder), cache, jobs["core/base/error.h"], []))

    def test_symbols(self):
        for name, code, reason in [("good", "", None), ("more", "void other(void) {}", "exports other shale_")]:
            self.write(name + ".c", "void shale_plugin_entry_v1(void) {}\n" + code)
            library = str(self.folder / (name + ".so"))
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, str(self.folder / (name + ".c"))], check=True)
            found = symbols.wrong_symbols(library)
            self.assertIn(reason, found) if reason else self.assertIsNone(found)
        self.assertIn("nm failed", symbols.wrong_symbols(str(self.folder / "README.md")))


class Functions(unittest.TestCase):
    def test_names_lines_parameters(self):
        found = [(f.name, f.lines, f.parameters) for f in functions(without_literals(CODE))]
        self.assertEqual([("S", 3, 2), ("operator__", 1, 1), ("operator__", 0, 3), ("pure", 0, 2), ("g", 4, 2),
                          ("p", 1, 2), ("c", 1, 0)], found)


if __name__ == "__main__":
    unittest.main()
