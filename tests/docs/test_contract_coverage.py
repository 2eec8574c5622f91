"""Every hook, descriptor field and capability is documented, and has a test or a rule that would notice if it did nothing."""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from typing import Any

import pytest

from crossbreed.core.conformance.rule import HOMES, rules_of
from crossbreed.core.contracts import hookspecs
from crossbreed.core.contracts.capabilities import MixerCapabilities, RouterCapabilities
from crossbreed.core.host import HOOKS
from tests.docs.pages import DOCS, generator

OFFERED = "tests/examples/test_plugins.py::test_there_is_an_example_of_every_kind_and_each_is_listed_with_its_distribution"
COLLISION = "tests/core/test_host.py::test_two_plugins_with_one_name_make_it_unusable_and_name_both"
LATE = "tests/examples/test_plugins.py::test_listing_them_imports_no_torch"
LISTED = "tests/cli/test_plugins.py::test_the_table_names_what_a_plugin_file_offers"
DIMENSIONS = "tests/core/budget/test_dimensions.py"
LEGALITY = "tests/core/model/test_legality.py"
MIXERS = "tests/plugins/mixers/test_mixer_registration.py"

HOOK_TESTS = dict.fromkeys(HOOKS, OFFERED)
FIELD_TESTS = {
    **{
        f"{descriptor.__name__}.{field}": test
        for kind, descriptor in HOOKS.values()
        for field, test in {
            "name": COLLISION,
            "factory": LATE,
            "config": f"{kind}/settings",
            "summary": LISTED,
            "ranges": f"{kind}/settings",
        }.items()
        if field in descriptor.__dataclass_fields__
    },
    "MixerDescriptor.capabilities": f"{LEGALITY}::test_a_part_in_a_place_it_cannot_serve_is_refused_by_the_missing_capability",
    "MixerDescriptor.free": f"{MIXERS}::test_every_draw_and_every_move_is_legal",
    "MixerDescriptor.on_request": f"{DIMENSIONS}::test_params_on_request_move_only_then",
    "MixerDescriptor.equal": f"{DIMENSIONS}::test_a_param_that_follows_another_starts_from_it",
    "MixerDescriptor.reader": f"{MIXERS}::test_a_reader_must_be_offered",
    "MixerDescriptor.reader_config": f"{LEGALITY}::test_a_legal_head_size_passes_and_readers_are_held_to_theirs",
    "MixerDescriptor.sees_depth": "mixer/depths",
    "RouterDescriptor.choices": "tests/core/contracts/test_canonical.py::test_a_mode_is_its_number_or_its_readers_name",
    "RouterDescriptor.capabilities": f"{LEGALITY}::test_a_part_in_a_place_it_cannot_serve_is_refused_by_the_missing_capability",
    "DepthPolicyDescriptor.shares_weights": "depth/weights",
    "CostModelDescriptor.needs_device": "cost/seconds",
    "TaskDescriptor.example": "tests/conformance/test_builtin_parts.py::test_a_builtin_keeps_the_rules",
    "TaskDescriptor.proven": "tests/cli/test_tasks.py::test_what_a_small_model_was_seen_to_learn_is_said_and_what_not_too",
    "MixerCapabilities.axis": "tests/cli/test_plugins.py::test_every_builtin_kind_is_listed_with_its_source",
    "MixerCapabilities.reader": f"{MIXERS}::test_a_reader_must_be_offered",
    "MixerCapabilities.head_sizes": "mixer/head-sizes",
    "MixerCapabilities.dtypes": "mixer/dtypes",
    "MixerCapabilities.longest": "tests/core/search/test_points.py::test_a_mixer_is_left_out_of_a_search_whose_texts_it_cannot_read",
    "MixerCapabilities.packing": "mixer/documents",
    "MixerCapabilities.causal": "mixer/causal",
    "MixerCapabilities.deterministic": "mixer/repeatable",
    "MixerCapabilities.execution": "mixer/skips",
    "MixerCapabilities.backends": "mixer/backends",
    "MixerCapabilities.backend_needs": "tests/cli/test_installed_plugins.py::test_backends_say_whether_they_work_here_and_what_they_lack",
    "MixerCapabilities.gradient_steps": "mixer/gradients",
    "MixerCapabilities.same_in_training": "mixer/same-in-training",
    "RouterCapabilities.sites": "router/sites",
    "RouterCapabilities.causal": "router/causal",
    "RouterCapabilities.gradient": "router/gradient",
    "RouterCapabilities.feedback_sites": "tests/plugins/routers/test_registration.py::test_every_router_stands_at_every_site_as_declared",
    "RouterCapabilities.max_choices": f"{LEGALITY}::test_a_part_in_a_place_it_cannot_serve_is_refused_by_the_missing_capability",
    "RouterCapabilities.deterministic": "router/counter-hash",
    "RouterCapabilities.needs_labels": "tests/plugins/routers/test_registration.py::test_every_router_stands_at_every_site_as_declared",
    "RouterCapabilities.fitted": "tests/plugins/routers/test_registration.py::test_every_router_stands_at_every_site_as_declared",
}
"""A field's test as ``file::function``, or its rule as ``kind/name``."""


@cache
def reference() -> Any:
    """The generator of the reference, which reads what docstrings say of fields."""
    return generator("plugin_reference")


CLASSES = [*(descriptor for _, descriptor in HOOKS.values()), MixerCapabilities, RouterCapabilities]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_says_what_it_means(cls: type) -> None:
    said = reference().fields(cls)
    assert {name for name, meaning in said.items() if not meaning} == set()


def test_every_field_of_what_methods_are_given_and_return_says_what_it_means() -> None:
    for told in reference().TOLD:
        assert {name for name, meaning in reference().fields(told).items() if not meaning} == set(), told


def test_every_hook_says_what_it_offers_and_every_hook_is_called() -> None:
    specified = {name for name in vars(hookspecs) if name.startswith("register_")}
    assert specified == HOOKS.keys()
    assert all(reference().sentence(getattr(hookspecs, name)) for name in specified)


def test_every_public_method_of_a_base_class_is_documented() -> None:
    bases = [base for bases in reference().BASES.values() for base in bases]
    for base in (*bases, *reference().TOLD):
        missing = [name for name, method in reference().methods(base) if not reference().sentence(method)]
        assert not missing, base


def test_every_hook_and_every_field_has_a_test() -> None:
    fields = {f"{cls.__name__}.{field.name}" for cls in CLASSES for field in dataclasses.fields(cls)}
    assert fields == FIELD_TESTS.keys()
    assert HOOKS.keys() == HOOK_TESTS.keys()


@pytest.mark.parametrize("where", sorted({*HOOK_TESTS.values(), *FIELD_TESTS.values()}))
def test_the_tests_and_rules_that_are_named_exist(where: str) -> None:
    file, _, function = where.partition("::")
    if function:
        tree = ast.parse((DOCS.parent / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    else:
        kind, _, name = where.partition("/")
        assert name in {rule.name for rule in rules_of(next(known for known in HOMES if known == kind))}
