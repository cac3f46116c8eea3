"""The form of a method's state, which a checkpoint relies on: names, dtypes and shapes of its tensors."""

from compressors.api import Reducer, State
from compressors.core.checks import MethodError
from compressors.core.compress import Compress
from trainers.checkpoint.tree import described, walk

Form = dict[str, str]  # dtype and shape of every tensor, by name


def form_of(reducer: Reducer, state: State) -> Form:
    """The form of ``reducer``'s state. Raises ``MethodError`` unless it is tensors in dicts and tuples."""
    try:
        per_worker, shared = (list(walk(state, "state", shared=alike)) for alike in (False, True))
    except TypeError as error:
        raise MethodError(f"the state of {_named(reducer)} cannot be saved: {error}") from None
    return {name: described(tensor) for name, tensor in per_worker} | {
        name: f"Shared {described(tensor)}" for name, tensor in shared
    }


def first_form(reducer: Reducer, state: State, num_workers: int) -> Form:
    """The form of the state that ``init`` returned in a process with ``num_workers`` local workers.

    Raises ``MethodError`` unless every tensor has a row per local worker or is in ``Shared``: a checkpoint
    contains only the workers' rows of a tensor.
    """
    form = form_of(reducer, state)
    for name, tensor in walk(state, "state"):
        if tensor.shape[:1] != (num_workers,):
            rule = "have a row for each local worker, [W, ...], or be in Shared"
            raise MethodError(
                f"every tensor in the state of {_named(reducer)} must {rule}: "
                f"{name} is {form[name]} for {num_workers} workers"
            )
    return form


def require_form(reducer: Reducer, state: State, first: Form) -> None:
    """Raise ``MethodError`` unless the state has the form that it had ``first``."""
    form = form_of(reducer, state)
    for name in sorted(form.keys() | first.keys()):
        before, now = first.get(name, "absent"), form.get(name, "absent")
        if before != now:
            rule = "keep the names, shapes and dtypes of init"
            raise MethodError(f"the state of {_named(reducer)} must {rule}: {name} was {before}, is {now}")


def _named(reducer: Reducer) -> str:
    """The classes of a method and its wrappers, from the inside out."""
    layers = reversed(list(reducer.layers()))
    methods = [layer.codec if isinstance(layer, Compress) else layer for layer in layers]
    return " in ".join(type(method).__name__ for method in methods)
