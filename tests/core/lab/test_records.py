from __future__ import annotations

import json

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.records import (
    Analysed,
    Curve,
    CurvePoint,
    Evaluated,
    Finished,
    Measurement,
    Profiled,
    RungDone,
    Started,
    from_json,
    to_json,
)

MEASURED = Measurement(
    "decode_tokens_per_s", "tokens/s", "decode", 1, 32, "float32", "cpu", "best", False, 10.0, 9.0, 11.0, 7
)


@pytest.mark.parametrize(
    "record",
    [
        Started({"torch": "2.13"}, 3),
        Profiled("forced:0.1", {"0.1.0.gate": (0.9, 0.1)}, (MEASURED,)),
        Curve((CurvePoint(5, 480, 0.1 + 0.2, 1e-3, 2.0, {"mode.rate": 0.5}),)),
        RungDone(0, 480, {"accuracy": 1 / 3}, "rung-0.safetensors", "ab" * 32, 1024),
        Evaluated("own", 480, {"accuracy": 1 / 3}, 1 / 3, {"mode": (0.5, 0.5)}, 24, 0, {"tokens": 12}, None),
        Analysed(
            "own", 480, 24, 1, {"agreement": {"flips": 0, "sites": [{"site": "mode", "agreement": 1.0}]}}
        ),
        Finished("failed", "exception: ValueError: no", "Traceback"),
    ],
)
def test_records_survive_json_exactly(record):
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


def test_unknown_kinds_are_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown record kind 'Curves'; did you mean 'Curve'"):
        from_json({"record": "Curves"})
