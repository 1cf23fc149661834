"""Applying a configuration file: nobody is served before that is done, so it only has to stay in proportion."""

from __future__ import annotations

from pathlib import Path

from busway.config.config import parse_config
from busway.config.definition import apply_config
from tests.cost.conftest import prepared
from tests.cost.instruments import Steps
from tests.cost.world import World
from tests.unit.config_texts import official

FEW = 50
TIMES = 4


def described(n: int) -> str:
    queues = [{"Name": f"q{i}", "Properties": {}} for i in range(n)]
    rules = [
        {"Name": f"r{i}", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": f"a = {i}"}}}
        for i in range(4)
    ]
    subscriptions = [{"Name": "s", "Properties": {}, "Rules": rules}]
    topics = [{"Name": f"t{i}", "Properties": {}, "Subscriptions": subscriptions} for i in range(n)]
    return official(*queues, Topics=topics)


def applied(world: World, n: int) -> Steps:
    steps = Steps()
    config = parse_config(described(n))
    steps.begin(world)
    world.run(apply_config(config, world.namespace, world.hubs))
    steps.end(world)
    assert len(world.namespace.queues()) == n
    return steps


def test_a_configuration_file_costs_what_it_says(tmp_path: Path) -> None:
    """Documentation: four times as many entities are about four times as many steps, first and again."""
    seen: dict[int, list[int]] = {}
    for n in (FEW, FEW * TIMES):
        with prepared(tmp_path / str(n)) as world:
            seen[n] = [applied(world, n).calls for _ in range(2)]  # the second time there is nothing to do
    for few, many in zip(seen[FEW], seen[FEW * TIMES], strict=True):
        assert many <= 6 * few, seen
