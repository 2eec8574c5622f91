"""What is known of a trained run, as plain data and as the card beside its exported model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crossbreed.core.budget.certificate import percents
from crossbreed.core.contracts.task import Task
from crossbreed.core.genome import digest, to_yaml
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.search.trained import TrainedRun
from crossbreed.storage import Repository
from crossbreed.storage.rows import PointRow, RunDetail

Record = dict[str, Any]
EXAMPLE = "the "


def record_of(repository: Repository, run: TrainedRun, point: str, model: LanguageModel) -> Record:
    """Where a model comes from, what it was matched to, and every stored result of its run, as plain data."""
    trial = repository.trial_detail(run.row.study_id, run.row.number)
    (detail,) = [found for found in trial.runs if found.run.id == run.row.id]
    task, last = run.setting.file.task, detail.rungs[-1]
    realised = detail.points[point].certificate if point in detail.points else None
    return {
        "run": run.row.key,
        "point": point,
        "genome": digest(model.architecture),
        "family": trial.trial.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "checkpoint": {"path": str(last.checkpoint), "sha256": last.sha256, "tokens": run.header.tokens},
        "task": {
            "name": task.name,
            "params": task.params,
            "evaluation": run.setting.task.evaluation_hash(),
            "score": run.setting.task.score.name,
        },
        "recipe": run.recipe.model_dump(mode="json"),
        "seed": run.row.seed,
        "plugins": run.row.identities,
        "environment": run.row.environment or {},
        "certificate": trial.trial.certificate,
        "realised_certificate": realised,
        "results": [_result(found) for found in detail.points.values() if found.evaluations or found.speeds],
        "seeds": [_seed(found) for found in trial.runs if _own_score(found) is not None],
    }


def _result(point: PointRow) -> Record:
    judged = point.evaluations[-1] if point.evaluations else None
    return {
        "point": point.name,
        "score": None if judged is None else judged.score,
        "metrics": {} if judged is None else judged.metrics,
        "rows": None if judged is None else judged.rows,
        "rates": point.rates or {},
        "speeds": [
            {
                "metric": m.metric,
                "median": m.median,
                "q1": m.q1,
                "q3": m.q3,
                "batch": m.batch,
                "tokens": m.tokens,
                "dtype": m.dtype,
                "device": m.device,
                "policy": m.policy,
                "compiled": m.compiled,
            }
            for m in point.speeds
        ],
    }


def _own_score(run: RunDetail) -> float | None:
    own = run.points.get("own")
    return own.evaluations[-1].score if own is not None and own.evaluations else None


def _seed(run: RunDetail) -> Record:
    return {"seed": run.run.seed, "role": run.run.role, "score": _own_score(run)}


def card(record: Record, model: LanguageModel, task: Task) -> str:
    """The card in Markdown. ``task``: that the run was trained on, which spells its tokens."""
    return "\n".join(_lines(record, model, task)) + "\n"


def _lines(record: Record, model: LanguageModel, spelling: Task) -> Iterator[str]:
    task, point = record["task"], record["point"]
    yield from (
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [crossbreed]",
        "---",
        "",
    )
    yield from (f"# {record['run']}" + ("" if point == "own" else f" at {point}"), "")
    yield (
        f"A hybrid sequence model of family `{record['family']}`, {record['parameters']:,} parameters, trained on task "
        f"`{task['name']}` for {record['checkpoint']['tokens']:,} tokens by crossbreed."
    )
    yield from ("", "## Use", "", "```python", *_use(spelling), "```", "")
    yield (
        "The model is its genome (`genome.yaml`, also in `config.json`) with float32 weights; in lower precision use autocast. "
        "Every text is read by itself: neither padding nor neighbours change it. It is for use, not for further training."
    )
    yield from (
        "",
        "## Certificate",
        "",
        "Signed distance from the budget's target; nominal rates before training.",
        "",
    )
    yield from _certificates({"nominal": record["certificate"], "realised": record["realised_certificate"]})
    yield from ("", "## Results", "", "As stored when this run was judged and timed; speeds are medians.", "")
    yield from _results(record)
    yield from _speeds(record["results"])
    yield from ("", "## Origin", "", "| | |", "|---|---|")
    for name, value in _origin(record):
        yield f"| {name} | {value} |"
    yield from ("", "## Genome", "", "```yaml", to_yaml(model.architecture).rstrip(), "```")


def _use(task: Task) -> Iterator[str]:
    yield "import torch"
    tokenizer = ", AutoTokenizer" if task.tokenizer is not None else ""
    yield f"from transformers import AutoModelForCausalLM{tokenizer}"
    yield "import crossbreed.integrations.transformers  # pip install 'crossbreed[transformers]'"
    yield ""
    yield 'model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")'
    if task.separator is None:
        yield f"prompt = torch.tensor([[0, 1]])  # token ids of the task, from 0 to {task.vocab - 1}"
        yield "print(model.generate(prompt, max_new_tokens=8, do_sample=False))"
    elif task.prompt(EXAMPLE) == list(EXAMPLE.encode()):
        yield f"prompt = torch.tensor([list({EXAMPLE!r}.encode())])  # a token is a byte of UTF-8"
        yield "out = model.generate(prompt, max_new_tokens=40, do_sample=False)"
        yield 'print(bytes(out[0].tolist()).decode(errors="replace"))'
    elif task.tokenizer is not None:
        yield 'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")'
        start = task.prompt("")
        yield f"prompt = {start} + tokenizer.encode({EXAMPLE!r}, add_special_tokens=False)  # {start[0]} starts a text"
        yield (
            f"out = model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, eos_token_id={task.ending})"
        )
        yield f"print(tokenizer.decode(out[0, {len(start)}:]))"
    else:
        yield f"prompt = torch.tensor([{task.prompt(EXAMPLE)}])  # {EXAMPLE!r} in the tokens of the task"
        yield f"print(model.generate(prompt, max_new_tokens=40, do_sample=False, eos_token_id={task.ending}))"


def _certificates(found: Mapping[str, Record | None]) -> Iterator[str]:
    if not any(found.values()):
        yield "None was stored."
        return
    yield "| rates | quantity | value | target | off by | allowed | kept |"
    yield "|---|---|---|---|---|---|---|"
    for rates, certificate in found.items():
        for q in (certificate or {}).get("quantities", ()):
            off, tolerance = percents(q["residual"], q["tolerance"])
            sign = "±" if q["kind"] == "match" else "+"
            yield (
                f"| {rates} | {q['quantity']} | {q['value']:,.6g} | {q['target']:,.6g} | {off} | {sign}{tolerance} | "
                f"{'yes' if q['ok'] else 'no'} |"
            )


def _results(record: Record) -> Iterator[str]:
    names = list(dict.fromkeys(name for result in record["results"] for name in result["metrics"]))
    if not names:
        yield "It was not judged."
        return
    yield f"| point | {' | '.join(names)} | rows |"
    yield "|---" * (len(names) + 2) + "|"
    for result in record["results"]:
        if result["metrics"]:
            cells = (_number(result["metrics"].get(name)) for name in names)
            yield f"| {result['point']} | {' | '.join(cells)} | {result['rows']} |"
    seeds = ", ".join(f"{_number(s['score'])} (seed {s['seed']}, {s['role']})" for s in record["seeds"])
    yield from ("", f"{record['task']['score']} of all runs of this candidate: {seeds}.")


def _speeds(results: Sequence[Record]) -> Iterator[str]:
    if not any(result["speeds"] for result in results):
        return
    yield from ("", "| point | metric | median | quartiles | measured |", "|---|---|---|---|---|")
    for result in results:
        for s in result["speeds"]:
            key = f"batch {s['batch']}, {s['tokens']} tokens, {s['dtype']}, {s['device']}, {s['policy']} backends"
            yield f"| {result['point']} | {s['metric']} | {s['median']:,.4g} | {s['q1']:,.4g} to {s['q3']:,.4g} | {key} |"


def _origin(record: Record) -> Iterator[tuple[str, str]]:
    task, checkpoint = record["task"], record["checkpoint"]
    yield "genome", f"`{record['genome']}`"
    yield "checkpoint", f"`{checkpoint['path']}`, SHA-256 `{checkpoint['sha256']}`"
    yield "task", f"`{task['name']}` with {task['params']}; evaluation items SHA-256 `{task['evaluation']}`"
    yield "recipe", ", ".join(f"{name} {value}" for name, value in record["recipe"].items())
    yield "seed", str(record["seed"])
    yield (
        "plugins",
        ", ".join(f"{part} of {identity}" for part, identity in sorted(record["plugins"].items())),
    )
    kept = ("crossbreed", "python", "torch", "device", "threads")
    yield (
        "trained with",
        ", ".join(f"{n} {record['environment'][n]}" for n in kept if n in record["environment"]),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
