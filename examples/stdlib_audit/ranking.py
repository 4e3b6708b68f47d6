"""Joins what the shares found: totals, packages, and the rankings that the report shows."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from graph import cycles, pagerank, reach

Module = dict[str, Any]  # what `metrics.measure` found in one file

SUMMED = ["lines", "code", "docs", "comments", "blank", "markers", "dead", "classes", "functions", "function_lines"]
SUMMED += ["hard_lines", "public", "documented", "slots", "annotated", "instructions"]
PUBLIC_ENOUGH = 20  # a share of fewer names than this says little
FUNCTIONS_ENOUGH = 10  # a mean of fewer functions neither


def rank_all(modules: list[Module], opcodes: Counter[str]) -> dict[str, Any]:
    """Everything the plot and the report need."""
    modules = sorted(modules, key=lambda module: module["module"])
    library = [module for module in modules if not module["test"]]
    tests = [module for module in modules if module["test"]]
    packages = rank_packages(library)
    return {
        "library": total(library),
        "tests": total(tests),
        "packages": packages,
        **correlations(plotted(packages)),
        "hardest": hardest(library),
        "deepest": hardest(library, key=4)[:1],
        "undocumented": undocumented(packages),
        "smells": smells(library),
        "copies": copies(library),
        "opcodes": opcodes.most_common(5),
        "opcodes_total": opcodes.total(),
        **imports(library, tests),
    }


def total(modules: Iterable[Module]) -> dict[str, Any]:
    """The sums over modules, and how many functions have which complexity."""
    modules = list(modules)
    complexities: Counter[int] = Counter()
    for module in modules:
        complexities.update({int(value): count for value, count in module["complexities"].items()})
    sums = {name: sum(module[name] for module in modules) for name in SUMMED}
    return {"modules": len(modules), **sums, "complexities": sorted(complexities.items())}


def rank_packages(modules: Iterable[Module]) -> list[dict[str, Any]]:
    """The totals of each package, a single module being one too, the largest first."""
    members = defaultdict(list)
    for module in modules:
        members[package_of(module["module"])].append(module)
    packages = []
    for name, parts in members.items():
        sums = total(parts)
        spread = sums.pop("complexities")
        mean = sum(value * count for value, count in spread) / max(1, sums["functions"])
        packages.append({"package": name, **sums, "complexity": round(mean, 3)})
    return sorted(packages, key=lambda package: (-package["code"], package["package"]))


def package_of(module: str) -> str:
    """The first of a module's names."""
    return module.partition(".")[0]


def hardest(modules: Iterable[Module], key: int = 3) -> list[list[Any]]:
    """The functions with the highest complexity (or another value): module, name, line, lines, complexity, depth."""
    functions = [[module["module"], *function] for module in modules for function in module["worst"]]
    return sorted(functions, key=lambda function: (-function[key + 1], -function[3], function[:2]))[:8]


def undocumented(packages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The packages that explain the smallest share of their public names."""
    large = [package for package in packages if package["public"] >= PUBLIC_ENOUGH]
    return sorted(large, key=lambda package: (package["documented"] / package["public"], -package["public"]))[:8]


def smells(modules: Iterable[Module]) -> dict[str, list[Any]]:
    """For each smell how often it was found, and the package that has most of it."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        for name, count in module["smells"].items():
            found[name][package_of(module["module"])] += count
        found["commented-out lines"][package_of(module["module"])] += module["dead"]
        found["TODO, FIXME, XXX"][package_of(module["module"])] += module["markers"]
    return {
        name: [counts.total(), *max(counts.items(), key=lambda item: (item[1], item[0]))]
        for name, counts in sorted(found.items())
        if counts.total()
    }


def copies(modules: Iterable[Module]) -> dict[str, Any]:
    """Function bodies that stand in more than one place, those with most lines to save first."""
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for module in modules:
        for body, lines, name in module["bodies"]:
            places[body].append((lines, f"{module['module']}.{name}"))
    copied = [sorted(found, key=lambda place: place[1]) for found in places.values() if len(found) > 1]
    copied.sort(key=lambda found: (-(len(found) - 1) * found[0][0], found[0][1]))
    return {
        "bodies": len(copied),
        "spare_lines": sum(lines for found in copied for lines, _ in found[1:]),
        "largest": [[found[0][0], [name for _, name in found]] for found in copied[:6]],
    }


def imports(library: list[Module], tests: list[Module]) -> dict[str, Any]:
    """What the import graph of the library says."""
    eager = {module["module"]: module["imports"] for module in library}
    everything = {module["module"]: module["imports"] + module["late"] for module in library}
    ranks = pagerank(everything)
    importers = Counter(target for module, targets in everything.items() for target in targets if target != module)
    tested = {package_of(name) for module in tests for name in module["imports"] + module["late"]}
    brought = {name: len(reach(eager, name)) - 1 for name in eager}
    hubs = sorted(ranks, key=lambda name: (-ranks[name], name))[:8]
    return {
        "edges": sum(importers.values()),
        "late_edges": sum(len(module["late"]) for module in library),
        "hubs": [[name, round(ranks[name], 5), importers[name], name in eager] for name in hubs],
        "heaviest": heaviest(brought),
        "alone": sum(count == 0 for count in brought.values()),
        "cycles": cycles(eager),
        "late_knot": max(map(len, cycles(everything)), default=0),
        "untested": sorted({package_of(name) for name in eager} - tested) if tests else None,
    }


def heaviest(brought: dict[str, int]) -> list[list[Any]]:
    """The modules whose import brings most others in, one for each package."""
    found: dict[str, list[Any]] = {}
    for name in sorted(brought, key=lambda name: (-brought[name], name)):
        found.setdefault(package_of(name), [name, brought[name]])
    return list(found.values())[:8]


def plotted(packages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The packages with enough functions for a mean to say something."""
    return [package for package in packages if package["functions"] >= FUNCTIONS_ENOUGH]


def correlations(packages: list[dict[str, Any]]) -> dict[str, float | None]:
    """Whether complexity goes with size, and with documentation."""
    sized = [(package["code"], package["complexity"]) for package in packages]
    public = [package for package in packages if package["public"] >= PUBLIC_ENOUGH]
    explained = [(package["documented"] / package["public"], package["complexity"]) for package in public]
    return {"size_and_complexity": correlation(sized), "documentation_and_complexity": correlation(explained)}


def correlation(pairs: list[tuple[float, float]]) -> float | None:
    """Spearman's: 1 if both have the same order, -1 if one has the other's reversed, near 0 if unrelated."""
    if len(pairs) < 3:
        return None
    first, second = (places([pair[side] for pair in pairs]) for side in (0, 1))
    middle = (len(pairs) - 1) / 2
    together = sum((one - middle) * (other - middle) for one, other in zip(first, second, strict=True))
    spread = sum((place - middle) ** 2 for place in first) * sum((place - middle) ** 2 for place in second)
    return round(together / spread**0.5, 3) if spread else None


def places(values: list[float]) -> list[float]:
    """The place of each value in their order; equal values share the mean of their places."""
    taken = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        taken[value].append(place)
    return [sum(taken[value]) / len(taken[value]) for value in values]
