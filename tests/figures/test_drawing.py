from __future__ import annotations

from crossbreed.core.genome import Architecture
from crossbreed.figures.drawing import architecture_figure

_SUBLAYER = {"mixer": "attention", "params": {"heads": 4, "short_conv": {"width": 4}}}


def _texts(architecture: Architecture) -> list[str]:
    figure = architecture_figure(architecture, lambda mixer: "sequence")
    return [note.text for note in figure.layout.annotations]


def test_stages_blocks_and_routers_are_drawn_where_they_stand() -> None:
    block = {"sublayers": [_SUBLAYER, {"mixer": "swiglu"}], "gate": {"name": "entropy_gate"}}
    architecture = Architecture.model_validate(
        {
            "vocab": 48,
            "d_model": 64,
            "mode_router": {"name": "segment_random"},
            "stages": [
                {"blocks": [block] * 3 + [{"sublayers": [_SUBLAYER] * 2, "arrangement": "parallel"}]},
                {
                    "blocks": [block],
                    "depth": {"name": "recurrent", "repeats": 4},
                    "halt": {"name": "learned", "params": {"rate": 0.5}},
                },
            ],
        }
    )
    texts = _texts(architecture)
    assert texts[0] == "embedding: 48 tokens, width 64, tied"
    assert "mode router: segment_random" in texts[1]
    assert texts.count("× 3") == 1
    assert texts.count("entropy_gate") == 2
    assert "+" in texts
    assert "→" in texts
    assert "stage 1: recurrent, 4 deep" in texts
    assert "halt: learned (rate 0.5)" in texts
    assert texts[-1] == "final norm, output head"
    order = [texts.index(t) for t in ("stage 0: layered, 1 deep", "× 3", "+", "stage 1: recurrent, 4 deep")]
    assert order == sorted(order)


def test_names_are_not_markup_and_what_is_cut_shows_on_hover() -> None:
    name = "<b>mixer</b> with a name too long for any box " * 3
    architecture = Architecture.model_validate(
        {"vocab": 8, "d_model": 8, "stages": [{"blocks": [{"sublayers": [{"mixer": name}]}]}]}
    )
    figure = architecture_figure(architecture, lambda mixer: "unknown")
    drawn = next(note.text for note in figure.layout.annotations if "mixer" in note.text)
    assert drawn.startswith("<b>&lt;b&gt;mixer&lt;/b&gt;")
    assert drawn.endswith("…</b>")
    assert any("too long" in text and "<b>mixer" not in text for (text,) in figure.data[0].customdata)
