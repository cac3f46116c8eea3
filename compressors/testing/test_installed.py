"""The contract for the methods of installed packages, as their conf folders name them."""

from compressors.testing.cases import cases_in
from compressors.testing.contract import Contract
from trainers.config.installed import config_folders


class TestInstalled(Contract):
    cases = tuple(case for folder in config_folders() for case in cases_in(folder.path))
