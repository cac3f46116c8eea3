"""Public names for methods: codecs, reducers, payloads, and helpers."""

from compressors.api import *  # noqa: F403  # the list is there
from compressors.api import __all__  # noqa: F401
