"""Samplers by name and the rules of proposing and stopping: the page, from the samplers' own words."""

from __future__ import annotations

from crossbreed.core.search.enumeration import LEVELS
from crossbreed.core.search.samplers import SAMPLERS

PAGE = "samplers.md"


def text() -> str:
    """The page."""
    rows = [
        f"| `{s.name}` | {'Optuna' if s.build is not None else 'own'} | {s.use} |" for s in SAMPLERS.values()
    ]
    return "\n".join(
        [
            "<!-- Written from crossbreed/core/search/samplers.py by `make generated`: change the code, not this page. -->",
            "",
            "# Samplers and stopping",
            "",
            "`search.sampler` names how architectures are proposed after the space's starting points.",
            "",
            "| sampler | by | what it does |",
            "|---|---|---|",
            *rows,
            "",
            PROPOSING.format(levels=LEVELS),
        ]
    )


PROPOSING = """\
Optuna's own grid sampler needs a fixed set of names, and here a name may be asked only after certain answers; so `grid` walks
the space itself, real ranges in {levels} levels.

## What a sampler is told

The study's tables are the only truth. For every proposal Optuna's study is built again in memory from all candidates and
today's options: a restarted search asks what the uninterrupted one would have asked, and an option that joins or leaves
between sessions needs nothing converted. A sampler is told

- the objectives of candidates that are trained and measured, means over their seeds;
- the relative distance from the budget of those that are `infeasible` or `off_budget`, as a constraint, with the worst values
  seen so far in place of objectives they do not have;
- that a candidate is running;
- nothing of a candidate that failed, diverged or ran out of memory, and nothing that is not a finite number.

With rungs, few candidates are ever trained to the end. Until `search.population` of them are, a sampler learns from one rung's
results instead: the highest that so many have reached, else the first.

## Screening by costs

What an architecture costs by the ledger is exact before anything is trained. Where an objective of the study is such a quantity,
every second candidate is chosen from `search.screen` proposals (8; 1 turns it off), half of them the sampler's and half drawn at
random: the one that would add most hypervolume to the front if it did as well as the best seen so far in everything that is not
known yet. Proposals that are passed over are not stored and may come again; one whose part is broken is stored at once. The
other candidates are the sampler's alone, so that costly ones have their turn. `grid` and `list` are not screened.

## No architecture twice

Candidates are told apart by the hash of their canonical form, after matching. A proposal whose draws or architecture are in the
study already is replaced by a fresh one, `search.repeats` times at most (10). Then the architecture it repeats gets its next
seed instead: a small space ends in better intervals, never in a loop, and never trains one architecture twice with one seed.
Such a seed counts as one of `trials`. `grid` and `list` pass over what is there already.

## A list

```yaml
search:
  sampler: list
  proposals:                    # or the path of a YAML file that holds such a list
    - draws: {{depth: layered, layer0.sequence: mamba2}}   # answers of the space; the rest is its first options
    - genome: my_model.yaml     # a path, a preset or a genome; certified as it is, never moved
```

## When a search ends

| rule | flag | ends |
|---|---|---|
| `stop.max_hours` | `--max-hours` | this session after so many hours |
| `stop.max_tokens` | `--max-tokens` | once all runs of the study together have trained so many tokens |
| `stop.max_trials` | `--max-trials` | once the study holds so many candidates beside its reference |
| `stop.stall: {{trials: n, share: x}}` | | once the last n finished candidates made the front's hypervolume less than x larger |

The lower of file and flag counts. After hours and tokens nothing more is begun: what runs goes on to the end of its rung, what
is trained is still timed, and the rest waits. After trials and a stall nothing more is proposed: what was begun is finished and
the front gets its seeds. The rule that ended a session is printed (`rule` in `--json`); the same command goes on, with a higher
limit where one is used up.

## Hypervolume over time

Hypervolume is measured from a reference point that is fixed when a study begins: chance for the score, 0 for speeds, twice the
reference's cost for quantities to be small. A point that is not better in every objective adds nothing. Every change of the
front is kept with the training tokens, seconds of search and trials up to then: `crossbreed study show` prints the last,
`front --json` and `study show --json` list all (`growth`). Means over further seeds may also lower it.
"""
