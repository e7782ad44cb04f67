"""Compiles the modules that every record of a producer goes through, with mypyc, where there is a C compiler.

Without one they run as the Python that they are, and sending takes twice the CPU. docs/DECISIONS.md says why
these and no others. `make compile` does it in place.
"""

import ast
import json
import re
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

COMPILED = [
    "src/barnabas/client/producer/accumulator.py",
    "src/barnabas/client/producer/batches.py",
    "src/barnabas/client/producer/chooser.py",
    "src/barnabas/client/producer/fast_send.py",
    "src/barnabas/client/producer/partition_state.py",
    "src/barnabas/client/partitioner.py",
    "src/barnabas/wire/records.py",
]
# What these import, such as numpy, need not be installed to compile them.
LENIENT = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
ENTRY = re.compile(r'(CPyPy_(\w+?)___(\w+?)___(\w+),\s+METH_[A-Z_| ]+, PyDoc_STR\(".*?--\\n\\n)"')


def document(generated: Path) -> None:
    """Give methods their docstrings back, which mypyc leaves out: people ask for `help(producer.send)`."""
    said = {
        (Path(path).stem, each.name, method.name): ast.get_docstring(method) or ""
        for path in COMPILED
        for each in ast.parse(Path(path).read_text()).body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, ast.FunctionDef)
    }
    documented = ENTRY.sub(
        lambda found: f'{found[1]}" {json.dumps(said.get((found[2], found[3], found[4]), ""))}',
        generated.read_text(),
    )
    generated.write_text(documented)


extensions = mypycify([*LENIENT, *COMPILED], opt_level="3", debug_level="0", group_name="barnabas")
document(Path("build/__native_barnabas.c"))
for extension in extensions:
    extension.optional = True
setup(ext_modules=extensions)
