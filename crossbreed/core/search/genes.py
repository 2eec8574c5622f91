"""Which gene matters: the effect of one choice over pairs of candidates that differ in that choice alone.

A candidate that was drawn has its draws as genes, others the fields of their genome. What a choice brings with it (the
settings of the mixer it names) belongs to the choice. Genes that change together in all candidates are one, since nothing
tells them apart. Dimensions that the matcher moves into the budget are no choice.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from crossbreed.core.budget.dimensions import DEPTH, unnumbered
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate, Objectives, value
from crossbreed.core.search.statistics import MIN_SEEDS, Paired, holm, paired
from crossbreed.storage import Repository

ABSENT = "none"
"""How spaces draw that a part is left out; a choice never asked for means the same."""
_NAMES = ("mixer", "name", "kind")
"""Fields that say what a part of a genome is; the other fields of the part hang on it."""


@dataclass(frozen=True)
class Subject:
    """A candidate as its genes: gene -> value as JSON text, and which genes hang on which.

    owned: gene -> genes that are there because of its value. reported: objective -> seed -> value of its report runs, empty
    before it has any. tuned: the same of the one run that chose its setting.
    """

    genes: Mapping[str, str]
    owned: Mapping[str, frozenset[str]]
    reported: Mapping[str, Mapping[int, float]]
    tuned: Mapping[str, Mapping[int, float]]

    def values(self, objective: str, *, reported: bool) -> Mapping[int, float]:
        return (self.reported if reported else self.tuned).get(objective, {})

    def context(self, gene: str) -> frozenset[tuple[str, str]]:
        """Everything but ``gene`` and what hangs on it."""
        left_out = self.owned.get(gene, frozenset()) | {gene}
        absent = json.dumps(ABSENT)
        return frozenset((k, v) for k, v in self.genes.items() if k not in left_out and v != absent)


@dataclass(frozen=True)
class Effect:
    """``after`` minus ``before`` of one gene in one objective, over pairs alike in everything else.

    paired: over at least three pairs, no two of which share a candidate. corrected: Holm's p-value among all effects.
    """

    gene: str
    before: Any
    after: Any
    objective: str
    paired: Paired
    corrected: float


@dataclass(frozen=True)
class Genes:
    """effects: the surest first. untested: genes that vary, but never in three such pairs."""

    effects: tuple[Effect, ...]
    untested: tuple[str, ...]


def effects(subjects: Sequence[Subject], objectives: Sequence[str]) -> Genes:
    """The effect of every choice between two values of a gene that three pairs or more can tell.

    A pair is two groups of candidates with equal other genes. Where all of them have report runs, its difference is taken
    over the seeds that all share, or between their means where they share none; otherwise between the runs that chose their
    settings, which are too good on both sides alike.
    """
    subjects = _merged(subjects)
    tests: list[tuple[str, str, str, str, Paired]] = []
    varied: set[str] = set()
    for gene in sorted({g for s in subjects for g in s.genes}):
        contexts = _contexts(subjects, gene)
        if len({v for by_value in contexts.values() for v in by_value}) > 1:
            varied.add(gene)
        for name in objectives:
            tests += [(gene, a, b, name, test) for a, b, test in _contrasts(contexts.values(), name)]
    corrected = holm([test.p for *_, test in tests if test.p is not None])
    found = [
        Effect(gene, json.loads(a), json.loads(b), name, test, p)
        for (gene, a, b, name, test), p in zip(tests, corrected, strict=True)
    ]
    found.sort(key=lambda e: (e.corrected, e.paired.p, e.gene, str(e.before), str(e.after), e.objective))
    return Genes(tuple(found), tuple(sorted(varied - {e.gene for e in found})))


def _merged(subjects: Sequence[Subject]) -> list[Subject]:
    """The same subjects with one gene for all that have equal values everywhere."""
    alike: dict[tuple[str | None, ...], list[str]] = defaultdict(list)
    for gene in sorted({g for s in subjects for g in s.genes}):
        alike[tuple(s.genes.get(gene) for s in subjects)].append(gene)
    names = {gene: _shared_name(genes) for genes in alike.values() for gene in genes}
    return [
        Subject(
            {names[g]: value for g, value in s.genes.items()},
            _renamed(s.owned, names),
            s.reported,
            s.tuned,
        )
        for s in subjects
    ]


def _renamed(owned: Mapping[str, frozenset[str]], names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for gene, others in owned.items():
        if gene in names:
            found[names[gene]] = found.get(names[gene], frozenset()) | {names[g] for g in others}
    return found


def _shared_name(genes: Sequence[str]) -> str:
    """``blocks.0.norm`` and ``blocks.1.norm`` are ``blocks.*.norm``; what has less in common is listed."""
    paths = [gene.split(".") for gene in genes]
    if len(genes) == 1 or len({(len(path), path[-1]) for path in paths}) > 1:
        return " + ".join(genes)
    return ".".join(words[0] if len(set(words)) == 1 else "*" for words in zip(*paths, strict=True))


Context = Mapping[str, Sequence[Subject]]
"""Value of the gene -> the subjects that have it, all alike in everything else."""


def _contexts(
    subjects: Iterable[Subject], gene: str
) -> dict[frozenset[tuple[str, str]], dict[str, list[Subject]]]:
    contexts: dict[frozenset[tuple[str, str]], dict[str, list[Subject]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for subject in subjects:
        if gene in subject.genes:
            contexts[subject.context(gene)][subject.genes[gene]].append(subject)
    return contexts


def _contrasts(contexts: Collection[Context], objective: str) -> Iterator[tuple[str, str, Paired]]:
    """(before, after, test) for each two values that enough contexts hold both of."""
    differences: dict[tuple[str, str], list[float]] = defaultdict(list)
    # A value in fewer contexts has too few pairs with any other; a size that is never drawn twice has thousands of others.
    held = Counter(value for by_value in contexts for value in by_value)
    for by_value in contexts:
        for before, after in combinations(sorted(v for v in by_value if held[v] >= MIN_SEEDS), 2):
            found = _difference(by_value[after], by_value[before], objective)
            if found is not None:
                differences[before, after].append(found)
    for (before, after), values in sorted(differences.items()):
        test = paired(values)
        if test is not None and test.pairs >= MIN_SEEDS:
            yield before, after, test


def _difference(a: Sequence[Subject], b: Sequence[Subject], objective: str) -> float | None:
    """Mean of ``a`` minus mean of ``b``; None where either has no value."""
    reported = all(s.values(objective, reported=True) for s in (*a, *b))
    found = ([s.values(objective, reported=reported) for s in side] for side in (a, b))
    a_values, b_values = ([values for values in side if values] for side in found)
    if not a_values or not b_values:
        return None
    shared = set.intersection(*(set(v) for v in (*a_values, *b_values)))

    def mean(side: list[Mapping[int, float]]) -> float:
        return _mean(_mean([v[seed] for seed in sorted(shared or v)]) for v in side)

    return mean(a_values) - mean(b_values)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def in_study(
    repository: Repository, study_id: int, candidates: Sequence[Candidate], objectives: Objectives
) -> Genes:
    """Which choices matter among all candidates of a study. Genomes are read of those that were not drawn."""
    genomes = repository.genomes(study_id, [c.row.number for c in candidates if not c.row.draws])
    subjects = [subject(c, genomes.get(c.row.number), objectives) for c in candidates]
    measured = [n for n in objectives.names if n not in QUANTITIES]
    return effects([s for s in subjects if s is not None], measured)


def subject(candidate: Candidate, genome: Mapping[str, Any] | None, objectives: Objectives) -> Subject | None:
    """A candidate with results as a subject; None for one that is not eligible. ``genome``: its data, used where it was not
    drawn."""
    if not candidate.eligible:
        return None
    measured = [n for n in objectives.names if n not in QUANTITIES]
    reported = {n: candidate.by_seed[n] for n in measured} if candidate.confirmed else {}
    tuned = {n: _chosen(candidate, n, objectives) for n in measured}
    draws = candidate.row.draws
    if draws:
        genes = {name: json.dumps(value, sort_keys=True) for name, value in draws.items()}
        return Subject(genes, _owned_draws(draws), reported, tuned)
    moved = {unnumbered(d) for d in (candidate.row.certificate or {}).get("dimensions", {})}
    genes, owned = _fields(genome or {}, moved)
    return Subject(genes, owned, reported, tuned)


def _chosen(candidate: Candidate, name: str, objectives: Objectives) -> dict[int, float]:
    run = candidate.chosen
    found = None if run is None else value(name, candidate.row, run, objectives)
    return {} if run is None or found is None else {run.seed: found}


def _owned_draws(draws: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Draws are named by their site and plugin: ``gate.learned.width`` hangs on ``gate``, and ``mamba2.state`` on the one
    choice that named ``mamba2``."""
    owned: dict[str, set[str]] = defaultdict(set)
    for name in draws:
        parents = {p for p in draws if name.startswith(f"{p}.") and p != name}
        words = set(name.split(".")[:-1])
        choosers = {
            g for g, value in draws.items() if g != name and isinstance(value, str) and value in words
        }
        # A setting that two choices brought in stays while one of them does.
        for parent in parents | (choosers if len(choosers) == 1 else set()):
            owned[parent].add(name)
    return {gene: frozenset(names) for gene, names in owned.items()}


def _fields(genome: Mapping[str, Any], moved: set[str]) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """A genome's fields by path, without moved dimensions; a part that says what it is has that as its value, and its
    other fields hang on it."""
    genes: dict[str, str] = {}
    owned: dict[str, frozenset[str]] = {}

    def walk(node: Any, path: str, plugin: str) -> None:
        if isinstance(node, Mapping):
            key = next((k for k in _NAMES if isinstance(node.get(k), str)), None)
            for name, value in node.items():
                if name != key:
                    walk(value, f"{path}.{name}".lstrip("."), plugin if key is None else str(node[key]))
            if key is not None:
                owned[path] = frozenset(g for g in genes if g.startswith(f"{path}."))
                genes[path] = json.dumps(node[key])
        elif isinstance(node, list):
            for i, value in enumerate(node):
                walk(value, f"{path}.{i}", plugin)
        elif not {f"{plugin}.{path.rsplit('.', 1)[-1]}", _whole_model(path)} & moved:
            genes[path] = json.dumps(node)

    walk(genome, "", "")
    return genes, owned


def _whole_model(path: str) -> str:
    """The dimension of the whole model that a field is, by the matcher's name for it."""
    return DEPTH if path.endswith(".depth.repeats") else path
