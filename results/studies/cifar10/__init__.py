"""CIFAR-10 with ResNet-20: the methods at one recipe, their errors and bytes, shards and workers."""

from results.studies.cifar10.page import STUDY

__all__ = ["STUDY"]
