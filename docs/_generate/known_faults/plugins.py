"""Faults of plugins, tasks and evaluation."""

from __future__ import annotations

from known_faults.fault import Fault

RECALL, BYTES = "tests/plugins/tasks/test_recall.py", "tests/plugins/tasks/test_text_bytes.py"
EVALUATION = "tests/core/lab/test_evaluate.py"
TASKS = {
    "T1": Fault(
        "a perfect predictor scores less than 1, or a mean of nothing is a score",
        (
            f"{EVALUATION}::test_a_perfect_predictor_scores_one_though_most_classes_are_absent",
            f"{EVALUATION}::test_labels_all_ignored_are_a_sentence_and_no_nan",
        ),
    ),
    "T2": Fault(
        "training and evaluation items overlap",
        (
            f"{RECALL}::test_training_never_meets_an_evaluation_item_even_where_rows_are_few",
            f"{BYTES}::test_repeats_across_the_cut_are_reported",
        ),
    ),
    "T3": Fault("labels are off by one", (f"{RECALL}::test_a_row_written_out_by_hand_is_solved",)),
    "T4": Fault("a filler is a legal key", (f"{RECALL}::test_rows_have_the_published_layout",)),
    "T5": Fault(
        "the batch size changes the score",
        (f"{EVALUATION}::test_batch_size_changes_neither_score_nor_decisions",),
    ),
    "T7": Fault(
        "a length that was not trained on chooses the checkpoint",
        note="Items have the task's own length, and no checkpoint is chosen by a score: a run is judged as its last step left it.",
    ),
}
LISTING = "tests/cli/test_installed_plugins.py"
HOST = "tests/core/test_host.py"
PLUGINS = {
    "P2": Fault(
        "an error at import is swallowed and the plugin silently missing",
        (
            f"{LISTING}::test_what_is_broken_is_listed_with_its_traceback_and_stops_nothing",
            f"{HOST}::test_a_plugin_that_raises_at_import_names_the_line",
        ),
    ),
    "P3": Fault(
        "a misspelt hook is accepted and never called",
        (
            f"{HOST}::test_a_misspelt_hook_names_the_right_one",
            f"{LISTING}::test_what_is_broken_is_listed_with_its_traceback_and_stops_nothing",
        ),
    ),
    "P5": Fault(
        "of two plugins with one name, one wins without a word",
        (
            f"{LISTING}::test_a_name_that_two_distributions_offer_is_used_of_neither_and_both_are_named",
            f"{HOST}::test_a_built_in_is_never_overridden",
        ),
    ),
    "P6": Fault(
        "discovery imports something heavy, or something that is not there",
        (
            f"{LISTING}::test_fifty_installed_plugins_are_listed_without_importing_anything_heavy",
            f"{LISTING}::test_a_plugin_that_needs_an_absent_kernel_is_listed_without_a_device",
        ),
    ),
}
