"""Public names for methods: codecs, reducers, payloads, and helpers."""

from compressors.api import *  # noqa: F403  # compressors.api lists them
from compressors.api import __all__  # noqa: F401
