"""The import graph: which modules matter most, what an import pulls in, who imports in circles."""

import sys
from collections.abc import Iterable, Mapping

Graph = Mapping[str, Iterable[str]]  # each module, and the modules it imports


def resolve(names: Iterable[str], known: set[str]) -> list[str]:
    """The modules behind imported names: "json.decoder.JSONDecoder" is in "json.decoder". Others' modules are left out.

    Modules without source files, written in C or built in, are known by their first name.
    """
    found = set()
    for name in names:
        parts = name.split(".")
        prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        built_in = parts[0] if parts[0] in sys.stdlib_module_names else None
        found.add(next((prefix for prefix in prefixes if prefix in known), built_in))
    return sorted(module for module in found if module)


def pagerank(graph: Graph, damping: float = 0.85, rounds: int = 60) -> dict[str, float]:
    """How likely one is to stand at each module after following imports at random for long."""
    targets = {module: sorted(set(imports) - {module}) for module, imports in graph.items()}
    modules = sorted(set(targets).union(*targets.values()))
    if not modules:
        return {}
    rank = dict.fromkeys(modules, 1 / len(modules))
    for _ in range(rounds):
        ends = sum(rank[module] for module in modules if not targets.get(module))  # nothing to follow: start anew
        share = dict.fromkeys(modules, (1 - damping + damping * ends) / len(modules))
        for module, imports in targets.items():
            for target in imports:
                share[target] += damping * rank[module] / len(imports)
        rank = share
    return rank


def reach(graph: Graph, start: str) -> set[str]:
    """All modules that importing one brings in, itself among them."""
    seen = {start}
    waiting = [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other in circles, the largest first."""
    reached = {module: reach(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in seen if module in reached.get(other, ()))) for module, seen in reached.items()
    }
    return sorted((list(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))
