# SPDX-License-Identifier: Apache-2.0
"""For all folders: --shard=I/N runs one of N parts of what was collected, in one piece, so that parts seldom share a fixture."""


def pytest_addoption(parser):
    parser.addoption("--shard", default="1/1", metavar="I/N")


def pytest_collection_modifyitems(config, items):
    number, of = map(int, config.getoption("--shard").split("/"))
    chosen = items[len(items) * (number - 1) // of:len(items) * number // of]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
