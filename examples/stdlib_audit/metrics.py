"""Measures source files. The work of the `analyse_*` tasks: what is here runs once for each file."""

import ast
import tokenize
import warnings
from collections import Counter
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from binding import unread_locals
from bytecode import count_opcodes
from lines import count_lines
from sources import is_test, module_name
from survey import HARD, Survey

UNMEASURABLE = (SyntaxError, ValueError, OSError, RecursionError, MemoryError, tokenize.TokenError)


def measure_files(root: str, paths: list[str]) -> dict[str, Any]:
    """Measure each file. One that cannot be read or parsed is named with the reason, and does not stop the others."""
    # Old code in test suites makes the compiler warn; the file names given to it say which warnings are meant.
    warnings.filterwarnings("ignore", module=r"<audit>")
    modules: list[dict[str, Any]] = []
    skipped: list[list[str]] = []
    counted: Counter[str] = Counter()
    for path in paths:
        try:
            module, opcodes = measure(path, Path(root, path).read_bytes())
        except UNMEASURABLE as error:
            skipped.append([path, type(error).__name__])
            continue
        modules.append(module)
        if not module["test"]:
            counted.update(opcodes)
    return {"modules": modules, "skipped": skipped, "opcodes": counted}


def measure(path: str, source: bytes) -> tuple[dict[str, Any], Counter[str]]:
    """Everything the rankings need to know about one module, kept short, and the instructions it compiles to."""
    filename = f"<audit>/{path}"
    tree = ast.parse(source, filename)
    survey = Survey(path, tree)
    lines = count_lines(source, survey.docstrings)
    functions = survey.functions
    worst = sorted(functions, key=lambda found: (-found.complexity, -found.lines, found.name))
    opcodes = count_opcodes(compile(tree, filename, "exec", dont_inherit=True))
    module = {
        "module": module_name(path),
        "test": is_test(path),
        **lines,
        "classes": survey.classes,
        "functions": len(functions),
        "function_lines": sum(found.lines for found in functions),
        "hard_lines": sum(found.lines for found in functions if found.complexity > HARD),
        "complexities": Counter(found.complexity for found in functions),
        "worst": [[found.name, found.line, found.lines, found.complexity, found.depth] for found in worst[:5]],
        "public": survey.public,
        "documented": survey.documented,
        "slots": survey.slots,
        "annotated": survey.annotated,
        "imports": sorted(survey.eager),
        "late": sorted(survey.late - survey.eager),
        "smells": {**survey.smells(), "locals never read": unread_locals(decode_source(source), filename)},
        "bodies": [[*found.body, found.name] for found in functions if found.body],
        "instructions": opcodes.total(),
    }
    return module, opcodes
