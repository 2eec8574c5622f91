"""Faults of mixers, routers and models."""

from __future__ import annotations

from known_faults.fault import MIXERS, OPS, ROUTERS, Fault

NUMERICS = {
    "N1": Fault(
        "the chunked delta rule gives NaN, at once or after many steps of training",
        (
            f"{OPS}/test_delta_rule.py::test_training_on_unnormalised_bf16_keys_stays_finite",
            f"{OPS}/test_delta_rule.py::test_two_hundred_steps_of_training_with_gates_from_open_to_shut_stay_finite",
            f"{OPS}/test_delta_rule.py::test_keys_that_nothing_normalises_never_end_in_a_score",
        ),
    ),
    "N2": Fault(
        "cumulated decay is differenced the wrong way round and explodes",
        (
            f"{OPS}/test_delta_rule.py::test_one_closed_gate_in_each_chunk_equals_the_recurrence",
            f"{OPS}/test_ssd.py::test_one_closed_gate_in_each_chunk_equals_the_recurrence",
        ),
    ),
    "N3": Fault(
        "a gate of 1 differs from no gate",
        (f"{OPS}/test_delta_rule.py::test_gate_one_is_the_ungated_delta_rule",),
    ),
    "N4": Fault(
        "parameters in pure low precision overflow in training",
        (
            "tests/core/lab/test_cuda.py::test_weights_and_optimiser_stay_in_float32",
            f"{MIXERS}/test_reading.py::test_bfloat16_keeps_recurrent_states_in_float32",
        ),
    ),
    "N6": Fault(
        "a chunk that is no power of two gives NaN",
        (
            f"{OPS}/test_delta_rule.py::test_a_chunk_that_is_no_power_of_two_is_refused",
            f"{OPS}/test_ssd.py::test_a_chunk_that_is_no_power_of_two_is_refused",
        ),
    ),
    "N11": Fault(
        "a kernel is silently wrong on a new device",
        (
            "tests/core/lab/test_probe.py::test_a_wrong_backend_is_refused_with_what_is_wrong_about_it",
            "tests/core/lab/test_probe.py::test_a_worker_refuses_a_mixer_whose_backend_fails_and_takes_no_other_one",
            "tests/core/lab/test_probe.py::test_a_backend_that_is_wrong_on_cuda_alone_is_refused_there",
            "tests/core/lab/test_probe.py::test_a_wrong_kernel_of_our_own_is_refused_with_the_mixer_that_it_serves",
            "tests/core/lab/test_rivals.py::test_the_fastest_that_is_right_and_ready_is_chosen_in_a_process_of_its_own",
        ),
        "A worker probes every backend before it serves it.",
    ),
}
SHAPES = {
    "S3": Fault("a head is too large for a kernel", ("tests/core/model/test_legality.py",)),
    "S4": Fault("divisibility is asserted deep inside", ("tests/search_spaces/test_layer_hybrids.py",)),
    "S6": Fault(
        "the last partial chunk is wrong",
        (
            f"{OPS}/test_ssd.py::test_outputs_state_and_gradients_equal_the_recurrence",
            f"{OPS}/test_delta_rule.py::test_outputs_state_and_gradients_equal_the_recurrence",
        ),
    ),
    "S7": Fault(
        "a step writes out of bounds and changes parameters",
        (f"{MIXERS}/test_mixer_weights.py::test_inference_changes_no_parameter",),
    ),
    "S8": Fault("one token or one row has another shape"),
    "S10": Fault("learned positions are fewer than tokens", note="No built-in has learned positions."),
    "S11": Fault("a label or a token is out of the vocabulary"),
}
CAUSALITY = {
    "C1": Fault("a block's summary leaks later tokens"),
    "C2": Fault("top-k over the sequence leaks later tokens"),
    "C3": Fault("a softmax over time in a router leaks later tokens"),
    "C4": Fault(
        "a fast path drops the causal mask",
        note="Tried in training, prefill and with half of the tokens reading, by every backend.",
    ),
    "C5": Fault(
        "a cumulative sum looks like a leak and is none",
        ("tests/conformance/test_mixers.py::test_an_unusual_mixer_that_is_right_passes",),
        "The rules pass it.",
    ),
    "C8": Fault(
        "a rate is rounded up to one token, so that at length 1 everything is routed",
        (f"{ROUTERS}/test_segment_random.py::test_a_quarter_stays_a_quarter_on_the_shortest_rows",),
    ),
    "C10": Fault(
        "a random router differs between workers, after a resume, or at the last short segment",
        (
            f"{ROUTERS}/test_segment_random.py::test_another_worker_and_a_resumed_step_draw_the_same_map",
            f"{ROUTERS}/test_segment_random.py::test_one_choice_a_segment_and_the_short_last_one_is_covered_once",
        ),
    ),
    "C11": Fault(
        "a part gets no gradient, or a router collapses onto one choice",
        (
            f"{ROUTERS}/test_learned.py::test_training_reaches_the_target_rate_and_keeps_every_choice_alive",
            "tests/core/lab/analytics/test_experts.py::test_a_pool_by_hand",
        ),
    ),
}
STATE = {
    "D1": Fault(
        "a split forward differs from the whole",
        (f"{MIXERS}/test_mixer_states.py::test_long_splits_agree_in_float32",),
    ),
    "D2": Fault("a prompt in pieces is ignored"),
    "D3": Fault("the convolution's window is stored after it"),
    "D4": Fault("a state has another structure after decode than after prefill"),
    "D5": Fault(
        "a sliding window is trimmed wrongly",
        (
            f"{MIXERS}/test_mixer_states.py::test_a_window_keeps_its_last_tokens_and_counts_all",
            f"{MIXERS}/test_mixer_states.py::test_a_window_of_8_holds_the_last_8_of_pieces_of_any_size",
        ),
    ),
    "D6": Fault("a used slot remembers the sequence before"),
    "D7": Fault(
        "padding changes results",
        (
            "tests/core/lab/test_reading.py::test_texts_of_any_lengths_beside_each_other_read_as_each_alone",
            "tests/integrations/test_transformers.py::test_padding_on_either_side_and_neighbours_change_nothing",
        ),
    ),
    "D8": Fault(
        "repeats of a stage share one cache",
        ("tests/core/model/test_dreamer.py::test_every_depth_keeps_keys_and_values_of_its_own",),
    ),
    "D10": Fault("the formula of the state's size is wrong"),
}
PARAMETERS = {
    "I1": Fault(
        "a wrapper sets initial values again",
        (f"{MIXERS}/test_mixer_weights.py::test_decays_start_in_their_ranges_and_survive_copies",),
    ),
    "I2": Fault("a mixer in a model differs from a bare one"),
    "I3": Fault(
        "weight decay reaches what must be spared",
        (
            "tests/core/model/test_language_model.py::test_decay_groups_cover_every_parameter_once_and_survive_deepcopy",
        ),
    ),
    "I5": Fault("an option is silently ignored"),
}
