from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crossbreed.cli.output import si
from crossbreed.core.lab import ceilings
from crossbreed.storage.locations import artefacts_of
from tests.cli.conftest import Cli
from tests.support.genomes import GENOMES

DEVICE = {"name": "toy", "matrix_flops_per_s": {"float32": 1e9}, "copy_bytes_per_s": 1e8, "launch_s": 1e-6}


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    path = tmp_path / "amor.yaml"
    path.write_text(yaml.safe_dump(GENOMES["amor"].model_dump(mode="json")))
    return path


def phases(out: str) -> list[str]:
    """The phases that stand over columns, in the lines above those that begin with ``site``."""
    lines = out.splitlines()
    return [
        word for i, line in enumerate(lines) if line.startswith(" site ") for word in lines[i - 1].split()
    ]


@pytest.mark.parametrize("columns", ["70", "100", "160"])
def test_no_number_is_broken_however_narrow_the_window_is(
    cli: Cli, genome: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = cli("cost", genome, "--at", "T=2048").out
    ledger = cli("cost", genome, "--at", "T=2048", "--json").json("cost")["ledgers"][0]
    for number in (ledger["parameters"], ledger["parts"][0]["parameters"]):
        assert f" {number:,} " in out
    for name in ("training_flops_per_token", "decode_flops_per_token"):
        assert f" {si(ledger[name], 4)} " in out
    assert phases(out) == ["train", "prefill", "decode"]
    assert max(map(len, out.splitlines())) <= int(columns)


def test_parts_stand_with_their_shares_and_conventions(cli: Cli, genome: Path) -> None:
    result = cli("cost", genome, "--at", "T=2048,B=1")
    assert result.code == 0
    assert "Ledger at 1 x 2048 tokens in float32" in result.out
    for name in (
        "gated_deltanet",
        "attention",
        "entropy_gate",
        "total",
    ):
        assert name in result.out
    assert phases(result.out) == ["train", "prefill", "decode"]
    assert "2 FLOPs" in result.out
    assert "Training peak:" in result.out
    assert "1.0.gate and 1 equal" in result.out


def test_shares_of_parts_sum_to_one(cli: Cli, genome: Path) -> None:
    ledger = cli("cost", genome, "--at", "T=128", "--json").json("cost")["ledgers"][0]
    for quantity in ("parameters", "training_flops_per_token", "decode_flops_per_token", "state_bytes"):
        assert sum(part[quantity] for part in ledger["parts"]) == pytest.approx(ledger[quantity])


def test_several_shapes_are_answered_in_order(cli: Cli, genome: Path) -> None:
    shown = cli("cost", genome, "--at", "T=64", "--at", "B=4,T=256,dtype=bfloat16", "--json").json("cost")
    at = [(x["batch"], x["tokens"], x["dtype"]) for x in shown["ledgers"]]
    assert at == [(1, 64, "float32"), (4, 256, "bfloat16")]


def test_one_phase_leaves_the_others_out(cli: Cli, genome: Path) -> None:
    out = cli("cost", genome, "--phase", "decode").out
    assert phases(out) == ["decode"]


def test_given_rates_replace_nominal_ones(cli: Cli, genome: Path) -> None:
    def decode(*more: str) -> float:
        return cli("cost", genome, "--json", *more).json("cost")["ledgers"][0]["decode_flops_per_token"]

    never, always = decode("--rates", "1.0.gate=1,0"), decode("--rates", "1.0.gate=0,1")
    assert never < decode() < always


def test_the_roofline_needs_a_measured_device_and_says_so(cli: Cli, genome: Path, tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    result = cli("cost", genome, "--model", "roofline", "--db", db)
    assert result.code == 2
    assert "crossbreed doctor --measure" in result.err
    ceilings.store(artefacts_of(str(db)), DEVICE)
    shown = cli("cost", genome, "--model", "roofline", "--db", db)
    assert "roofline on toy: decode" in shown.out
    assert phases(shown.out).count("decode") == 2  # FLOPs and seconds
    assert "s/token" in shown.out
    ceilings.store(artefacts_of(str(db)), {**DEVICE, "name": "other"})
    result = cli("cost", genome, "--model", "roofline", "--db", db)
    assert result.code == 2
    assert "choose one with --device: other, toy" in result.err


def test_doctor_measures_and_keeps_the_ceilings(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ceilings.SIZES, "cpu", 64)
    monkeypatch.setitem(ceilings.COPIED_BYTES, "cpu", 1 << 16)
    db = tmp_path / "x.db"
    checks = cli("doctor", "--measure", "--db", db, "--json").json("doctor")["checks"]
    assert any(
        check["name"].endswith("ceilings") and "FLOP/s in float32" in check["detail"] for check in checks
    )
    assert len(ceilings.read(artefacts_of(str(db)))) >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--at", "T=0"), "T must be a whole number of at least 1, got '0'"),
        (("--at", "T=2k"), "T must be a whole number"),
        (("--at", "tokens=8"), "unknown key of --at 'tokens'"),
        (("--at", "T=8,T=9"), "each key once"),
        (("--at", "dtype=float31"), "unknown dtype 'float31'; did you mean"),
        (("--rates", "1.0.gate"), "must be SITE=SHARE,SHARE"),
        (("--rates", "1.0.gate=a,b"), "must be SITE=SHARE,SHARE"),
        (("--rates", "1.0.gate=0.5,0.6"), "2 shares that sum to 1"),
        (("--rates", "1.0.gate=1,0", "--rates", "1.0.gate=0,1"), "each site once"),
        (("--device", "cpu"), "cost model 'analytic' counts the same for every device"),
        (("--rates", "7.0.gate=0.5,0.5"), "unknown routed site '7.0.gate'"),
        (("--model", "analitic"), "unknown cost model 'analitic'; did you mean 'analytic'"),
    ],
)
def test_bad_input_is_named_with_its_rule(
    cli: Cli, genome: Path, options: tuple[str, ...], message: str
) -> None:
    result = cli("cost", genome, *options)
    assert result.code == 2
    assert message in " ".join(result.err.split())


def test_the_measured_model_reads_the_databases_profiles(cli: Cli, genome: Path, db: Path) -> None:
    result = cli("cost", genome, "--model", "measured", "--db", db)
    assert result.code == 2
    assert "cost model 'measured'" in result.err
