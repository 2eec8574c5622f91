"""Faults of plugins, tasks and evaluation."""

from __future__ import annotations

from known_faults.fault import Fault

RECALL, BYTES = "tests/plugins/tasks/test_recall.py", "tests/plugins/tasks/test_text_bytes.py"
TRIAL = "tests/core/lab/test_trial.py"
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
            "tests/core/contracts/test_task.py::test_equal_seeds_of_both_sides_share_everything",
            "tests/core/contracts/test_task.py::test_short_rows_of_few_tokens_overlap_whatever_the_seeds",
            "tests/plugins/tasks/test_text.py::test_equal_documents_are_on_one_side_and_the_order_of_the_file_decides_nothing",
        ),
    ),
    "T3": Fault(
        "labels are off by one",
        (
            f"{RECALL}::test_a_row_written_out_by_hand_is_solved",
            f"{RECALL}::test_the_solver_reaches_the_bound_and_a_constant_guess_chance",
            "tests/plugins/tasks/test_synthetic.py::test_a_row_written_out_by_hand_is_solved",
            "tests/plugins/tasks/test_text.py::test_labels_are_next_tokens_of_the_same_document_and_its_end",
        ),
    ),
    "T4": Fault("a filler is a legal key", (f"{RECALL}::test_rows_have_the_published_layout",)),
    "T5": Fault(
        "the batch size changes the score",
        (
            f"{EVALUATION}::test_batch_size_changes_neither_score_nor_decisions",
            "tests/cli/test_eval.py::test_a_run_scores_what_its_search_stored_in_batches_of_any_size",
            "tests/core/lab/test_likelihood.py::test_every_request_has_the_likelihood_of_a_whole_pass_in_any_batch",
            "tests/integrations/test_lm_harness.py::test_tasks_score_what_the_model_really_says_in_any_batch",
        ),
        "The tolerance is stored with the score, `crossbreed eval` prints it, and compares batch sizes on request.",
    ),
    "T7": Fault(
        "a length that was not trained on chooses the checkpoint",
        (
            f"{TRIAL}::test_lengths_that_were_not_trained_on_choose_no_checkpoint_in_any_order",
            "tests/core/search/test_points.py::test_longer_texts_reach_every_run_that_can_read_them_and_compete_for_nothing",
            "tests/core/search/test_points.py::test_lengths_that_a_study_file_may_not_name",
        ),
        note="No checkpoint is chosen by a score: a run is judged as its last step left it.",
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
