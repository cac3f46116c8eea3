"""Contract tests for the methods in the conf folders of installed packages."""

from contract.cases import cases_in
from contract.contract import Contract
from trainers.config.installed import config_folders


class TestInstalled(Contract):
    cases = tuple(case for folder in config_folders() for case in cases_in(folder.path))
