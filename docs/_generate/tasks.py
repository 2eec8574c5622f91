"""The built-in tasks: what each asks, its chance, and what a small model was seen to learn."""

from __future__ import annotations

from typing import Any

from crossbreed.core.contracts.task import Proven
from crossbreed.core.host import Host, Registry

PAGE = "tasks.md"

GROUPS = {
    "Recall": ("recall", "noisy_recall", "fuzzy_recall", "needle", "filler_recall", "variables"),
    "Copying and memory": ("copy", "selective_copy", "compression", "facts"),
    "State and depth": ("parity", "permutations", "arithmetic", "pointers", "registers"),
    "Text": ("bytes", "text"),
}


def text() -> str:
    """The page."""
    registry = Host.load(third_party=False)
    listed = {name for names in GROUPS.values() for name in names}
    assert listed == set(registry.names("task")), listed ^ set(registry.names("task"))
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        rows = [_row(registry, name) for name in names]
        parts.append("\n".join([f"## {title}\n", HEAD, *rows, "", ABOUT[title]]))
    return "\n".join([*parts, REST])


def _row(registry: Registry, name: str) -> str:
    descriptor = registry.descriptor("task", name)
    task = registry.factory("task", name)(registry.config("task", name, dict(descriptor.example)))
    chance = f"{task.chance:.3g}" if task.score.bound is not None else "-"
    return f"| `{name}` | {descriptor.summary} | {chance} | {_seen(descriptor.proven)} |"


def _seen(proven: Proven | None) -> str:
    if proven is None:
        return "nobody has looked, or none did"
    settings = ", ".join(f"`{key}: {_yaml(value)}`" for key, value in proven.settings.items()) or "defaults"
    return (
        f"{settings}: {proven.score:.3f} after {proven.tokens / 1e6:.2g} million tokens by {proven.model} "
        f"({proven.model_parameters / 1e3:.0f} thousand parameters), {_seeds(proven.seeds)}"
    )


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"the worst of {count} seeds"


def _yaml(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


HEAD = "| task | what it asks | chance | seen to be learnt |\n|---|---|---|---|"

INTRODUCTION = """\
<!-- Written from the tasks' descriptors by `make generated`: change docs/_generate/tasks.py or the code, not this page. -->
# Tasks

A study trains and judges every candidate on one task: `task: {name: recall, params: {pairs: 8}}`. Vocabulary and length come from it.

```console
$ crossbreed tasks list
$ crossbreed tasks show pointers --set held_out=[2,3] --overlap
```

`tasks show` prints settings, how the task judges, the hash of its evaluation items, and items as people read them, with what is due
behind an arrow. Settings that do not go together are refused with the rule that they break.

Tasks that are not texts make their rows from random numbers, as a function of (seed, step, row): any worker makes the same ones, and
a resumed run goes on with those that it would have had. The hash of a row's tokens says whether it may be trained on or is kept for
evaluation (one in 16), so that nothing is in both, whatever the seed. Each ships a solver that reaches the score's bound, and
`crossbreed check` holds it to that. Chance is a guess among the answers that are possible, at the settings a task has unless told
otherwise. The last column is what was seen, not what is possible: with other settings, nobody has looked.
"""

ABOUT = {
    "Recall": """\
`needle` with `needles: 1` is the single-key form, with more the multi-key one. `recall` has pairs first, then queries among fillers
(zoology's layout), `noisy_recall` and `fuzzy_recall` are MAD's: pairs in one stream, in which keys come again.

`filler_recall` is the miniature by which AMOR is re-tested. Pairs stand scattered in a text of order 2 with low entropy and are asked
for later; every next token is a target, and the score counts answers alone. `noise` replaces a share of the filler by what nobody can
predict, and the text goes on from there, so that exactly that share is irreducible. Positions are told apart by what is due: answer,
new value, key, noise, filler. A gate can thus be scored against two labels, *recall* and *irreducible* (keys and values never seen
are unpredictable too), and either of them; see [router analytics](router-analytics.md). More noise leaves pairs, places and
questions as they are.
""",
    "Copying and memory": """\
`compression` asks for all symbols of a window in one token, so that one state must hold them. `facts` is memorisation: what is due
is the same in every row and stands in no row. Nothing repeats an operator there, so depth should not help: a gain by depth on `facts`
says that a budget or the tuning is wrong.
""",
    "State and depth": """\
Every step's state is due, or with `scored: last` the last one only. `pointers` with `held_out: [2, 3]` trains on the other numbers of
hops and is judged on those alone: held-out composition. Its classes tell numbers of hops apart.

A swap is one reflection, which one step of the delta rule with negative eigenvalues can be; rows of any permutations of 5 points
(`moved: 5`) were not seen to be learnt. Of `registers` modulo 3, 3 layers of attention stayed at 0.78 after 4 million tokens.
""",
    "Text": """\
`bytes` cuts one text, or a folder of them, into regions and keeps the end of each for evaluation; every byte is a token.

`text` reads documents: a text file (documents parted by `<|endoftext|>`; long ones are cut at line ends), JSON lines (`.jsonl`), Parquet,
or a folder of them; or what the package `datasets` loads by name, such as
`path: "dataset:Salesforce/wikitext?subset=wikitext-2-raw-v1&split=train"`. `field` names the column. Tokens are bytes, or those of any
`tokenizer.json` of the package `tokenizers`; `pip install 'crossbreed[text]'` installs all three.

```yaml
task:
  name: text
  params: {path: stories.jsonl, tokenizer: tokenizer.json, length: 512}
```

- Some of the different documents are kept for evaluation, by their hashes: equal ones are on one side, and the order of a file decides
  nothing. Changing a file changes the data; a study refuses to go on with other evaluation items.
- Every document stands behind a token that starts it (the tokenizer's own, such as `<|endoftext|>`, or one id more). Rows are cut from
  all documents one after the other, shuffled anew in every epoch, and hold no padding. Documents are numbered: positions restart,
  states are reset and attention does not reach across. The last token of a document has its end as target.
- Rows are a function of (seed, step, batch size): a resumed run goes on where it was.
- Tokens are made once for a host, in shards that are mapped into memory, in the folder that `CROSSBREED_CACHE` names (else the
  user's cache). They are made again when the path, size or time of a file changes.
- `bits_per_byte` is all bits of the evaluation items over all bytes of text that they account for, so tokenizers compare. A tokenizer
  that does not give back the text it was given (capitals, unknown words) is judged by `loss_nats` instead: it could be as sure as
  it likes of what it has thrown away.
- `tasks show text --overlap` counts evaluation rows that share 32 successive tokens with a training document.
""",
}

REST = """\
## Other lengths

`evaluation: {lengths: [1, 2, 4, 8, 16]}` in a [study file](study-file.md) judges every run on rows so many times as long, too. They
are items of their own, fixed and hashed, and compete for nothing: neither a front nor a checkpoint is chosen by them.

## Where the loss comes from

Every evaluation is stored with sums over its labelled positions, whether the score counts them or not: by the task's classes, and
along the text (every position up to 256 tokens, else bins; positions restart with each document).

```python
from crossbreed import Study

with Study.open("crossbreed.db", "first") as study:
    study.losses()  # by class of positions
    study.losses("position")  # along the text, at every length that was judged
```

The dashboard's page Candidate draws both, as means over seeds.

## Speed

`python benchmarks/bench_tasks.py` prints how many times faster each task makes rows than a model of 2 million parameters trains on
them, both on this CPU in turn.
"""
