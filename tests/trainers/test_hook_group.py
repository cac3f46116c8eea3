"""The hook's own process group, and what single processes may ask a state."""

from processes import run_in_processes
from script_groups import (
    alone,
    gradients_beside_groups,
    is_freed_with_its_model,
    many_models,
    metrics_of_one_process,
    summary_after_a_failure,
)


def test_processes_may_belong_to_different_numbers_of_groups() -> None:
    found = run_in_processes(gradients_beside_groups, 4)
    assert found == [
        [1.5, 0.5, 1.0, 1.5],
        [1.5, 0.5, 1.0, 2.0, 1.5],
        [1.5, 2.5, 1.0, 2.0, 1.5],
        [1.5, 2.5, 2.0, 1.5],
    ]


def test_a_wait_for_other_processes_says_for_what() -> None:
    (said, *notes), _ = run_in_processes(alone, 2)
    assert said.startswith(
        "compress must be called by all processes of the model, ranks 0, 1: Timed out waiting"
    )
    assert len(said.splitlines()) == 1
    places = "step 1 of the compression", "state.summary()"
    assert notes == [f"in {place}, in which all processes of the model take part" for place in places]


def test_sixty_models_share_descriptors_and_threads() -> None:
    for found in run_in_processes(many_models, 2, 60):
        assert found["counts"] == found["counts"][:1] * 59


def test_a_state_is_freed_with_its_model() -> None:
    assert all(run_in_processes(is_freed_with_its_model, 2))


def test_one_process_alone_may_ask_for_metrics() -> None:
    first, _ = run_in_processes(metrics_of_one_process, 2)
    assert first == [True] * 4


def test_a_summary_after_a_failed_backward_pass_is_that_of_the_last_whole_step() -> None:
    assert all(run_in_processes(summary_after_a_failure, 2))
