"""The plugin files of a study: required again when it goes on, and told apart by their content."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossbreed.core.errors import PluginError
from crossbreed.core.host import KEEP_OUT, KIND_LABELS, Owner, PluginFile, Registry
from crossbreed.core.search.candidates import Candidate
from crossbreed.storage import Repository
from crossbreed.storage.rows import PluginText, RunRow, SeedRow, StudyRow


@dataclass(frozen=True)
class OlderText:
    """A text that a plugin file had before, and the candidates of it.

    now:     SHA-256 of the text that was used last.
    numbers: candidates whose numbers are of runs with the older text.
    chosen:  candidates whose numbers are not, but whose setting was chosen by such a run.
    """

    path: str
    sha256: str
    now: str
    numbers: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def sentences(self) -> list[str]:
        """What stands under a table of the candidates."""
        which = f"an older text of plugin file {self.path} (sha256 {self.sha256[:12]}; last used: {self.now[:12]})"
        found = []
        if self.numbers:
            found.append(f"By {which}: the numbers of {_candidates(self.numbers)}.")
        if self.chosen:
            found.append(f"By {which}: the run that chose the setting of {_candidates(self.chosen)}.")
        return found


def check(repository: Repository, row: StudyRow, registry: Registry) -> tuple[str, ...]:
    """Raise PluginError unless every plugin file that a study used is given again, under its path or with its content:
    its candidates cannot be built without it.

    Returns a sentence for each file that has another text than when it was used last.
    """
    stored = repository.plugin_files(row.id)
    last = {text.path: text for text in stored}
    given = {_path(f): f for f in registry.files}
    # A file that was moved and edited since is known by the text it had when it was moved.
    known = {f.sha256 for f in registry.files} | {s.sha256 for s in stored if s.path in given}
    for text in last.values():
        there = text.sha256 in known or text.path in given
        rival = _rival(text, registry)
        if rival is not None:
            what, owner = rival
            goes_on = "" if there else f" and add --plugin {text.path}"
            raise PluginError(
                f"study {row.name!r} uses plugin file {text.path!r}, whose {what} is offered by the installed {owner.source} "
                f"now; to go on with the file, uninstall {owner.distribution} or {KEEP_OUT}{goes_on}; to use what is "
                "installed, start a study under another name."
            )
        if not there:
            raise PluginError(
                f"study {row.name!r} uses plugin file {text.path!r} (sha256 {text.sha256[:12]}), which was not given; "
                f"add --plugin {text.path}"
            )
    changed = [(last[path], f) for path, f in given.items() if path in last and last[path].sha256 != f.sha256]
    runs = repository.runs(row.id) if changed else []
    return tuple(_changed(row, old, new, stored, runs) for old, new in changed)


def check_stored(url: str, study: str, registry: Registry) -> None:
    """``check`` for the study of that name, if the database is there and holds it; nothing is written."""
    if "://" not in url and not Path(url).exists():
        return
    with Repository.open(url, read_only=True, create=False) as repository:
        row = repository.find_study(study)
        if row is not None:
            check(repository, row, registry)


def provider(repository: Repository, name: str) -> PluginText | None:
    """The plugin file that offers ``name``, of those that studies of the database used: the one used last, of several."""
    for study in reversed(repository.list_studies()):
        for text in reversed(repository.plugin_files(study.id)):
            if name in offered(text.text):
                return text
    return None


def older_texts(stored: Sequence[PluginText], found: Iterable[Candidate]) -> list[OlderText]:
    """The candidates of texts that plugin files had before, by file and text; ``stored``: as the repository lists them."""
    last = {text.path: text.sha256 for text in stored}
    now = set(last.values())
    candidates = list(found)
    rows = []
    for text in stored:
        if text.sha256 in now:
            continue
        by = [c for c in candidates if any(_is_of(s, text) for s in c.counted or c.seeds)]
        chosen = [c for c in candidates if c not in by and c.chosen is not None and _is_of(c.chosen, text)]
        # A candidate stands there once for each of its operating points.
        numbers, others = _numbers(by), _numbers(chosen)
        if numbers or others:
            rows.append(OlderText(text.path, text.sha256, last[text.path], numbers, others))
    return rows


def _changed(
    row: StudyRow, old: PluginText, new: PluginFile, stored: Sequence[PluginText], runs: Sequence[RunRow]
) -> str:
    before = [text for text in stored if text.path == old.path and text.sha256 != new.sha256]
    count = len({run.number for run in runs if any(_is_of(run, text) for text in before)})
    who = f"{count or 'no'} {'candidate has' if count == 1 else 'candidates have'} runs of an older text"
    return (
        f"Plugin file {old.path!r} has changed since study {row.name!r} used it (sha256 {old.sha256[:12]} then, "
        f"{new.sha256[:12]} now): {who}, which are never pooled with runs of this one."
    )


def _rival(text: PluginText, registry: Registry) -> tuple[str, Owner] | None:
    """A part that the file offers and an installed distribution offers too, and that distribution."""
    for (kind, name), owners in registry.collisions.items():
        installed = [owner for owner in owners if owner.distribution]
        if installed and any(owner.identity == f"sha256:{text.sha256}" for owner in owners):
            return f"{KIND_LABELS[kind]} {name!r}", installed[0]
    if text.sha256 in {f.sha256 for f in registry.files}:
        return None
    names = offered(text.text)
    for kind, entries in registry.entries.items():
        for name, entry in entries.items():
            if name in names and entry.owner.distribution and not entry.owner.builtin:
                return f"{KIND_LABELS[kind]} {name!r}", entry.owner
    return None


def offered(text: str) -> set[str]:
    """Names that a plugin's text gives to descriptors, as far as they are written out; none of its code runs for it."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    written = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Descriptor"):
            named = [k.value for k in node.keywords if k.arg == "name"]
            for value in (*node.args[:1], *named):
                value = written.get(value.id, value) if isinstance(value, ast.Name) else value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.add(value.value)
    return found


def _is_of(run: RunRow | SeedRow, text: PluginText) -> bool:
    return f"sha256:{text.sha256}" in run.identities.values()


def _path(file: PluginFile) -> str:
    return str(Path(file.path).absolute())


def _numbers(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    return tuple(sorted({c.row.number for c in candidates}))


def _candidates(numbers: Sequence[int]) -> str:
    return f"candidate{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
