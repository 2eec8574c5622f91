"""Faults of cost models and of profiling."""

from __future__ import annotations

from known_faults.fault import MIXERS, Fault

FLOPS = "tests/core/conformance/test_flop_count.py"
COUNTS = "tests/plugins/costs/test_algorithmic_flops.py"
PREDICTIONS = "tests/plugins/costs/test_predictions.py"
PROFILES = "tests/core/lab/test_profile.py"
COSTS = {
    "F1": Fault(
        "a FLOP counter ignores custom kernels",
        (
            f"{FLOPS}::test_an_operation_of_a_plugins_own_needs_a_formula",
            f"{FLOPS}::test_what_a_function_of_its_own_dispatches_is_seen",
        ),
        "An operation without a formula is an error.",
    ),
    "F2": Fault(
        "the same mathematics written another way has another count",
        (
            f"{FLOPS}::test_a_product_counts_two_for_each_multiply_add",
            f"{FLOPS}::test_the_same_mathematics_written_without_a_product_is_element_wise",
        ),
        "An outer product is element-wise work, which the ledger does not count, and says so.",
    ),
    "F4": Fault(
        "a FLOP counter counts nothing in inference mode",
        (f"{FLOPS}::test_inference_mode_counts_the_same",),
        "A count of zero is an error.",
    ),
    "F5": Fault(
        "causal attention is charged in full, or by half, without saying so",
        (
            f"{COUNTS}::test_attention_touches_visible_pairs_only",
            "tests/cli/test_cost.py::test_parts_stand_with_their_shares_and_conventions",
        ),
    ),
    "F9": Fault(
        "a quadratic term is charged to linear mixers",
        (
            f"{MIXERS}/test_mixer_costs.py::test_linear_mixers_cost_the_same_at_any_length",
            f"{COUNTS}::test_attention_is_affine_and_a_window_caps_it",
        ),
    ),
    "F10": Fault(
        "the clock is read before the device is done",
        (f"{PROFILES}::test_the_device_is_waited_for_on_both_sides_of_the_timed_region",),
    ),
    "F11": Fault(
        "too little warm-up, or tuning inside the timed region",
        (
            f"{PROFILES}::test_a_slow_first_call_is_in_no_statistic",
            f"{PROFILES}::test_warm_up_goes_on_while_calls_get_faster",
        ),
    ),
    "F12": Fault(
        "two models are timed on one device at once",
        (
            "tests/core/search/test_driver.py::test_profiles_run_alone_and_in_a_row",
            "tests/core/lab/test_lease.py::test_a_second_holder_waits_says_for_whom_and_gets_it_when_the_first_is_done",
            "tests/core/lab/test_lease.py::test_a_holder_that_is_killed_leaves_nothing_behind",
            "tests/core/lab/test_neighbours.py::test_a_real_neighbour_is_seen_and_this_process_is_not",
            "tests/core/lab/test_neighbours.py::test_a_real_neighbour_on_a_gpu_is_seen",
            "tests/cli/test_front.py::test_speeds_that_were_not_timed_alone_are_named",
        ),
        "Timing holds the device against every other study of the host, and says who was at work all the same.",
    ),
    "F13": Fault(
        "the sum of predicted parts is not the whole",
        (
            f"{PREDICTIONS}::test_its_error_is_that_on_architectures_held_out",
            f"{PREDICTIONS}::test_outside_what_was_profiled_it_answers_only_when_asked",
        ),
        "Budgets carry tolerances.",
    ),
    "F14": Fault(
        "a memory peak is that of something else",
        (
            "tests/plugins/costs/test_training_memory.py::test_kept_bytes_are_those_that_autograd_holds",
            "tests/docs/test_training_peak.py::test_measured_training_peaks_are_predicted_within_15_percent",
            "tests/core/lab/test_fresh.py::test_a_call_runs_in_a_process_of_its_own_that_has_done_nothing_before",
            "tests/core/lab/test_cuda.py::test_the_memory_peak_is_that_of_a_process_that_has_done_nothing_else",
        ),
        "On a CUDA device a candidate's training peak, allocated and reserved, is measured in a fresh process before it trains.",
    ),
    "F15": Fault(
        "architectures are compared at different batches",
        (f"{PROFILES}::test_measurements_carry_their_whole_key",),
        "Speeds are compared at batch 1 and the task's length alone.",
    ),
    "F16": Fault(
        "which of two is faster changes with the length, and a chart mixes lengths",
        (
            "tests/storage/test_records.py::test_measurements_of_different_keys_stand_side_by_side",
            "tests/figures/test_front.py::test_a_speed_of_another_key_is_never_drawn",
            f"{PREDICTIONS}::test_keys_are_never_mixed",
        ),
    ),
}
