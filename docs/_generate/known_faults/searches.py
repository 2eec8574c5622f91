"""Faults of searches, their storage, their workers and their statistics."""

from __future__ import annotations

from known_faults.fault import Fault

SAMPLES, RUNGS = "tests/core/search/test_samplers.py", "tests/core/search/test_rungs.py"
RECOVERY = "tests/core/search/test_driver_recovery.py"
SURVIVAL = "tests/core/search/test_survival.py"
ENDS = "tests/core/search/test_sudden_ends.py"
DATABASE = "tests/storage/test_database.py"
SEARCH = {
    "O2": Fault(
        "a reader stops a writer",
        (
            "tests/core/search/test_database_faults.py::test_32_processes_stream_through_one_driver_into_one_file_while_a_reader_polls",
            "tests/storage/test_concurrency.py::test_a_polling_reader_neither_stops_writers_nor_sees_half_of_anything",
            f"{DATABASE}::test_read_only_really_refuses_writes",
        ),
    ),
    "O3": Fault(
        "a database on a network disk is torn, or a lock file blocks for ever",
        (f"{DATABASE}::test_a_network_file_system_is_refused_for_writing_with_the_alternative",),
        "There is no journal file and no lock file: SQLite is refused there, PostgreSQL named instead.",
    ),
    "O4": Fault(
        "runs of a dead worker stay running",
        (
            f"{SURVIVAL}::test_whatever_happens_to_workers_ends_in_a_record_and_the_search_goes_on",
            f"{ENDS}::test_killed_in_any_phase_a_search_loses_nothing_and_does_nothing_twice",
            "tests/storage/test_runs.py::test_an_expired_lease_is_queued_again_and_its_late_records_refused",
        ),
        "States and leases are ours; Optuna keeps none.",
    ),
    "O6": Fault(
        "a preempted run counts as failed",
        (f"{RECOVERY}::test_a_worker_taken_back_with_its_node_is_no_attempt",),
    ),
    "O8": Fault("settings that mean the same look different"),
    "O12": Fault(
        "an infinite objective stands on the front",
        (
            "tests/core/search/test_front.py::test_nan_and_infinity_are_never_on_the_front_and_dominate_nobody",
            f"{SAMPLES}::test_proposals_survive_every_kind_of_past",
            f"{RECOVERY}::test_a_record_that_no_front_could_hold_fails_its_run_alone",
            f"{SURVIVAL}::test_numbers_that_no_front_could_hold_and_memory_that_is_not_there_end_a_run_of_their_own",
        ),
    ),
    "O13": Fault(
        "a NaN point is never dominated",
        (
            "tests/core/search/test_front.py::test_nan_and_infinity_are_never_on_the_front_and_dominate_nobody",
            f"{RUNGS}::test_nobody_goes_on_without_finite_values",
        ),
    ),
    "O14": Fault(
        "runs cannot be pruned under several objectives",
        (
            f"{RUNGS}::test_a_share_goes_on_and_nobody_passes_a_better_one",
            "tests/core/search/test_driver.py::test_rungs_promote_the_best_and_prune_the_rest",
        ),
        "Rungs are ours; Optuna is never asked to prune.",
    ),
    "O15": Fault(
        "a search proposes what cannot be built, or nothing",
        (f"{SAMPLES}::test_nothing_feasible_or_one_poor_feasible_candidate_still_gives_proposals",),
    ),
    "O16": Fault(
        "hypervolume moves with its reference point, or raises",
        (
            "tests/core/search/test_front.py::test_points_outside_the_reference_add_nothing_and_do_not_raise",
            "tests/core/search/test_driver.py::test_the_reference_point_is_fixed_once",
            "tests/core/search/test_stopping.py::test_every_change_of_the_front_is_kept_with_its_reference_point",
        ),
    ),
    "O18": Fault(
        "storage is slow where a study is large",
        (
            "tests/storage/test_statements.py::test_many_values_are_written_by_as_few_statements_as_one",
            "tests/storage/test_statements.py::test_the_records_of_many_runs_are_one_transaction",
            "tests/storage/test_statements.py::test_the_front_takes_as_many_statements_of_a_large_study_as_of_a_small_one",
        ),
        "`benchmarks/bench_storage.py` prints the times.",
    ),
    "O19": Fault(
        "a resumed search forgets what it knew",
        (
            f"{ENDS}::test_killed_in_any_phase_a_search_loses_nothing_and_does_nothing_twice",
            f"{SAMPLES}::test_a_sequence_goes_on_after_a_restart",
            "tests/core/search/test_listing.py::test_a_grid_goes_on_where_it_was_and_grows_with_its_space",
            "tests/core/search/test_growing.py::test_a_router_registered_later_joins_and_history_is_kept",
        ),
    ),
}
EXECUTORS = "tests/core/search/executors"
CUDA = "tests/core/search/test_survival_cuda.py"
WORKERS = {
    "R1": Fault(
        "a worker that was stopped still holds device memory",
        (
            f"{EXECUTORS}/test_ray_worker.py::test_a_worker_is_ready_once_its_killed_predecessor_is_gone",
            f"{CUDA}::test_what_a_killed_run_held_is_there_for_the_next",
        ),
    ),
    "R2": Fault(
        "workers outlive the search",
        (f"{SURVIVAL}::test_whatever_happens_to_workers_ends_in_a_record_and_the_search_goes_on",),
    ),
    "R3": Fault(
        "running out of memory looks like a crash, and is tried for ever",
        (
            f"{RECOVERY}::test_a_host_without_memory_is_tried_three_times_and_is_no_crash",
            f"{CUDA}::test_a_device_without_memory_ends_the_run_and_not_the_search",
            f"{SURVIVAL}::test_numbers_that_no_front_could_hold_and_memory_that_is_not_there_end_a_run_of_their_own",
        ),
    ),
    "R4": Fault(
        "a device assert poisons its process, and every later run of it",
        (f"{CUDA}::test_a_worker_whose_context_is_poisoned_is_replaced",),
        "A worker takes another run only after an ordinary end.",
    ),
    "R5": Fault(
        "a worker's share of the GPUs is rounded to nothing, or its GPU is not visible",
        (
            f"{EXECUTORS}/test_base.py::test_gpus_are_shared_without_rounding_to_zero",
            f"{EXECUTORS}/test_ray_worker.py::test_a_worker_that_does_not_see_its_device_is_not_ready",
        ),
    ),
    "R7": Fault(
        "a resumed run sees other data",
        ("tests/core/lab/test_kept.py::test_a_stopped_run_goes_on_to_exactly_the_same_losses",),
    ),
}
STATISTICS = {
    "X1": Fault(
        "an interval from three seeds covers less than it says",
        (
            "tests/core/search/test_statistics.py::test_coverage_of_three_seeds_is_nominal",
            "tests/core/search/test_statistics.py::test_a_percentile_bootstrap_of_three_seeds_would_not_cover",
        ),
        "Intervals are Student t; no bootstrap is offered.",
    ),
    "X4": Fault(
        "the fit of a scaling law is trapped, and says nothing",
        (
            "tests/core/search/test_scaling.py::test_five_noisy_points_give_back_about_the_law_that_made_them",
            "tests/core/search/test_scaling.py::test_a_start_that_is_trapped_elsewhere_does_not_win",
            "tests/core/search/test_scaling.py::test_what_is_done_elsewhere_ends_elsewhere_without_a_word",
        ),
        "How many of its starts ended at the law is printed with it.",
    ),
    "X5": Fault(
        "noise decides who is on the front",
        ("tests/core/search/test_membership.py::test_two_equal_architectures_get_about_equal_probabilities",),
    ),
}
