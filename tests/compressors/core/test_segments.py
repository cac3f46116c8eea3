"""Segments that are reduced together."""

import pytest
import torch

from compressors.core.segments import Segment, inputs_of


def test_segments_of_several_dtypes_are_refused_together() -> None:
    """Compiled loops would read the entries of one as those of the other, and write beyond its end."""
    of = {
        dtype: Segment("a", torch.zeros(1, 4, dtype=dtype), ((4,),))
        for dtype in (torch.float32, torch.float64)
    }
    assert [given.segment for given in inputs_of([of[torch.float64]])] == [of[torch.float64]]
    with pytest.raises(ValueError, match=r"must have one dtype, got float32 and float64$"):
        inputs_of([*of.values()])
