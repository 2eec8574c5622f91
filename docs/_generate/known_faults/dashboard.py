"""Faults of the dashboard and its charts."""

from __future__ import annotations

from known_faults.fault import Fault

QUERIES = "tests/dashboard/test_queries.py"
LARGE = "tests/dashboard/test_large.py"
DASHBOARD = {
    "V1": Fault(
        "a message to the browser is too large for a study of many trials",
        (
            f"{LARGE}::test_curves_of_a_large_study_are_thinned_in_the_database",
            f"{LARGE}::test_no_page_of_a_large_study_sends_more_than_two_megabytes",
        ),
        "Tables are sent by pages of 1,000 rows, curves at 300 points, choosers list 200 candidates",
    ),
    "V2": Fault(
        "every tab that opens reads everything again",
        (
            f"{QUERIES}::test_ten_tabs_on_a_cold_cache_read_once",
            "tests/dashboard/test_follower.py::test_threads_that_look_while_others_write_all_end_at_what_is_stored",
            "tests/storage/test_changes.py::test_whatever_is_written_in_one_instant_is_found_and_nothing_else_is_read",
        ),
    ),
    "V3": Fault(
        "a connection of SQLite is used in another thread than its own",
        (f"{QUERIES}::test_one_engine_serves_any_number_of_threads_with_a_session_each",),
    ),
    "V5": Fault(
        "there are too many trials to draw",
        (
            "tests/figures/test_front.py::test_of_very_many_candidates_the_front_and_those_nearest_to_it_are_drawn",
            f"{LARGE}::test_a_large_study_draws_its_front_and_says_how_many_candidates_it_hides",
        ),
    ),
    "V7": Fault(
        "a log axis meets zero or negative values, or only the best are wanted",
        (
            "tests/dashboard/test_front_page.py::test_zero_on_a_log_axis_makes_it_linear_and_is_said",
            "tests/figures/test_front.py::test_a_log_axis_holds_every_mean_even_where_an_interval_reaches_below_zero",
            "tests/figures/test_front.py::test_of_the_dominated_only_the_nearest_to_the_front_are_drawn_when_few_are_asked_for",
        ),
    ),
    "V8": Fault(
        "a chart moves points by hand-made corrections",
        (
            "tests/figures/test_front.py::test_a_chart_of_layers_moves_no_stored_value",
            "tests/figures/test_front.py::test_markers_and_bars_are_the_stored_means_and_interval_ends",
        ),
    ),
}
