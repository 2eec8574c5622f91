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
}
