import json
import math

import numpy as np
import pytest

from crossbreed.storage import plain
from tests.storage.material import Ledgerish


def test_numbers_that_are_not_finite_become_null_at_any_depth() -> None:
    value = {"a": [math.nan, 1.5, {"b": -math.inf}], "c": math.inf}
    assert plain.plain(value) == {"a": [None, 1.5, {"b": None}], "c": None}


def test_dataclasses_tuples_and_numpy_scalars_become_json() -> None:
    value = Ledgerish(7, {"0.0.gate": (0.75, 0.25)})
    assert json.loads(plain.dumps({"x": value, "n": np.float32(0.5)})) == {
        "x": {"parameters": 7, "rates": {"0.0.gate": [0.75, 0.25]}},
        "n": 0.5,
    }


def test_a_value_with_no_json_form_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="complex"):
        plain.plain({"z": 1j})


@pytest.mark.parametrize(("value", "kept"), [(1.5, 1.5), (math.nan, None), (math.inf, None), (None, None)])
def test_finite(value: float | None, kept: float | None) -> None:
    assert plain.finite(value) == kept
