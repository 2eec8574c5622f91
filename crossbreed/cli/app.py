"""The Typer application: names of commands with their examples, and nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from crossbreed import __version__
from crossbreed.cli.archives import export_study, import_study
from crossbreed.cli.check import check
from crossbreed.cli.claims import claims
from crossbreed.cli.compare import compare
from crossbreed.cli.comparisons import compare_stored, gene_effects
from crossbreed.cli.cost import cost
from crossbreed.cli.dashboard import dashboard
from crossbreed.cli.doctor import doctor
from crossbreed.cli.eval import evaluate_run
from crossbreed.cli.export_model import export_model
from crossbreed.cli.fit_router import fit_router
from crossbreed.cli.front import front
from crossbreed.cli.generate import generate
from crossbreed.cli.import_model import import_model
from crossbreed.cli.init import init
from crossbreed.cli.ladder import ladder
from crossbreed.cli.match import match
from crossbreed.cli.new import new
from crossbreed.cli.options import Commands, examples
from crossbreed.cli.orders import pause, resume, stop
from crossbreed.cli.plugins import plugins
from crossbreed.cli.presets import presets
from crossbreed.cli.report import report
from crossbreed.cli.reproduce import reproduce
from crossbreed.cli.routers import routers
from crossbreed.cli.search import search
from crossbreed.cli.show import show
from crossbreed.cli.study import study
from crossbreed.cli.tasks import tasks

app = Commands(
    name="crossbreed",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"crossbreed {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Breed hybrid sequence models under one budget, and see which survive."""


app.command(epilog=examples("crossbreed plugins", "crossbreed plugins --plugin my_router.py --json"))(plugins)
app.command(
    epilog=examples(
        "crossbreed check mamba2",
        "crossbreed check my_mixer.py --profile suite",
        "crossbreed check my-distribution --json",
    )
)(check)
app.command(epilog=examples("crossbreed presets", "crossbreed presets oryx --json"))(presets)
app.command(
    epilog=examples(
        "crossbreed new router my_router",
        "crossbreed new mixer my_mixer --package --out plugins",
    )
)(new)
app.command(epilog=examples("crossbreed init", "crossbreed init studies/first.yaml"))(init)
app.command(
    epilog=examples(
        "crossbreed show amor-gdn-180m",
        "crossbreed show genome.yaml --tokens 4096",
        "crossbreed show first/3",
        "crossbreed show 3f9a2c --db crossbreed.db --json",
    )
)(show)
app.command(
    epilog=examples(
        "crossbreed cost amor-gdn-180m --at T=2048,B=1,dtype=bfloat16",
        "crossbreed cost genome.yaml --at T=1024 --at T=32768 --phase decode",
        "crossbreed cost genome.yaml --rates 0.1.gate=0.6,0.4 --json",
        "crossbreed cost genome.yaml --model roofline --device 'NVIDIA H200'",
    )
)(cost)
app.command(
    epilog=examples(
        "crossbreed match genome.yaml --budget study.yaml",
        "crossbreed match 3f9a2c --budget budget.yaml --out matched.yaml",
        "crossbreed match amor-gdn-180m --budget budget.yaml --free d_model=512..1024:64 --solver descent",
        "crossbreed match mamba2+attention --budget study.yaml",
        "crossbreed match --all --budget budget.yaml --space layer_hybrids --json",
    )
)(match)
app.command(
    epilog=examples(
        "crossbreed search study.yaml --plan",
        "crossbreed search study.yaml --plugin my_router.py",
        "crossbreed search study.yaml --executor inline --deterministic --json",
    )
)(search)
app.command(
    epilog=examples(
        "crossbreed compare a.yaml b.yaml --budget study.yaml --seeds 3",
        "crossbreed compare 3f9a2c 81be04 --budget study.yaml --match",
    )
)(compare)
app.command(
    epilog=examples(
        "crossbreed claims amor",
        "crossbreed claims oryx --seeds 5 --record oryx.json",
        "crossbreed claims dreamer --scale gpu --show --json",
    )
)(claims)
app.command(epilog=examples("crossbreed front", "crossbreed front quickstart --all --db demo/crossbreed.db"))(
    front
)
app.command(
    epilog=examples(
        "crossbreed report quickstart --db demo/crossbreed.db",
        "crossbreed report quickstart --out front.svg",
        "crossbreed report quickstart --out candidates.parquet",
    )
)(report)
app.command(
    epilog=examples("crossbreed reproduce first/3/0", "crossbreed reproduce first/3/0 --threads 4 --json")
)(reproduce)
app.command(
    "import-model",
    epilog=examples(
        "crossbreed import-model mamba2-130m imported/mamba2",
        "crossbreed import-model model.safetensors imported/amor --as amor --set residual_mode=h --set n_heads=12",
    ),
)(import_model)
app.command(
    "eval",
    epilog=examples(
        "crossbreed eval text/3/0 --length 1 --length 4 --batch 1 --batch 32",
        "crossbreed eval oryx/0/0 --point own --point schedule:0=mamba2,-16=attention --json",
        "crossbreed eval text/3/0 --lm-eval lambada_openai,my_task.yaml --limit 100 --max-length 1024",
    ),
)(evaluate_run)
app.command(
    "export-model",
    epilog=examples(
        "crossbreed export-model first/3/0 exported/first",
        "crossbreed export-model amor/0/1 exported/amor --point fitted:distilled --json",
        "crossbreed export-model oryx/0/0 exported/oryx --point schedule:0=mamba2,860=attention",
    ),
)(export_model)
app.command(
    "fit-router",
    epilog=examples("crossbreed fit-router first/3/0", "crossbreed fit-router first/3/0 --steps 500 --json"),
)(fit_router)
app.command(
    epilog=examples(
        "crossbreed routers quickstart/3/0",
        "crossbreed routers quickstart/3/0 --point forced:0.4 --rows 512 --json",
        "crossbreed routers oryx/0/0 --switch 860",
    )
)(routers)
app.command(
    epilog=examples(
        "crossbreed generate text/3/0 --prompt 'It was the best of times' --tokens 64",
        "crossbreed generate text/3/0 --prompt 'It was' --temperature 0.8 --top-k 40 --seed 7 --json",
        "crossbreed generate oryx/0/0 --prompt 'k3 v1 k0 v5' --tokens 8 --point schedule:0=mamba2,-4=attention",
    )
)(generate)
app.command(
    epilog=examples(
        "crossbreed ladder sizes",
        "crossbreed ladder small middle large --family mamba2+attention --hold-out 2",
        "crossbreed ladder sizes --size training_flops_per_token --metric bits_per_byte --predict 1e9 --json",
    )
)(ladder)
app.command(
    epilog=examples(
        "crossbreed dashboard", "crossbreed dashboard --db demo/crossbreed.db --port 8600 --no-browser"
    )
)(dashboard)
app.command(epilog=examples("crossbreed doctor", "crossbreed doctor --measure", "crossbreed doctor --json"))(
    doctor
)
study.command(
    "compare",
    epilog=examples("crossbreed study compare first 3 8", "crossbreed study compare first 3f9a2c 0 8 --json"),
)(compare_stored)
study.command(
    "genes", epilog=examples("crossbreed study genes first", "crossbreed study genes first --json")
)(gene_effects)
study.command(
    "pause", epilog=examples("crossbreed study pause first", "crossbreed study pause first --db results.db")
)(pause)
study.command(
    "resume", epilog=examples("crossbreed study resume first", "crossbreed study resume first --json")
)(resume)
study.command(
    "stop", epilog=examples("crossbreed study stop first", "crossbreed study stop first --wait 120")
)(stop)
study.command(
    "export",
    epilog=examples(
        "crossbreed study export first first.zip", "crossbreed study export first backups --files"
    ),
)(export_study)
study.command(
    "import",
    epilog=examples(
        "crossbreed study import first.zip",
        "crossbreed study import first.zip --db postgresql://me@host/results",
    ),
)(import_study)
app.add_typer(tasks)
app.add_typer(study)
