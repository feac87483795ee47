"""Settings of topics: names, types, ranges, and where a value comes from."""

import pytest

from headwater.errors import InvalidConfig
from headwater.log.config import (
    BY_BROKER_NAME,
    INT_MAX,
    LONG_MAX,
    SETTINGS,
    Kind,
    TopicConfig,
    broker_defaults,
    check_overrides,
)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_is_within_its_own_range(name: str) -> None:
    setting = SETTINGS[name]
    setting.parse(setting.default)
    assert setting.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("retention.ms", ["", "x", "1.5", "-2", "1_000", str(LONG_MAX + 1)]),
        ("segment.bytes", ["0", "-1", str(INT_MAX + 1)]),
        ("min.cleanable.dirty.ratio", ["-0.1", "1.1", "half", "nan", "0.0_1"]),
        ("cleanup.policy", ["keep", "compact,keep"]),
        ("message.timestamp.type", ["createtime", "LogAppend"]),
        ("compression.type", ["brotli", ""]),
        ("preallocate", ["yes", "1"]),
        ("compression.gzip.level", ["10", "-2"]),
        ("remote.storage.enable", ["true", " TRUE ", "1"]),
        ("local.retention.ms", ["-3"]),
        ("no.such.setting", ["1"]),
    ],
)
def test_values_that_do_not_fit(name: str, bad: list[str]) -> None:
    for value in bad:
        with pytest.raises(InvalidConfig, match="cannot set"):
            check_overrides({name: value})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " -1 ", -1),
        ("retention.ms", str(LONG_MAX), LONG_MAX),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("preallocate", "TRUE", True),
        ("compression.type", "zstd", "zstd"),
    ],
)
def test_values_that_do(name: str, text: str, value: object) -> None:
    assert SETTINGS[name].parse(text) == value


def test_a_topics_own_setting_goes_before_the_brokers_and_that_before_the_default() -> None:
    name = "retention.bytes"
    assert TopicConfig.resolve().retention_bytes == -1
    assert TopicConfig.resolve({}, {name: "5"}).retention_bytes == 5
    assert TopicConfig.resolve({name: "7"}, {name: "5"}).retention_bytes == 7


def test_what_the_log_makes_of_them() -> None:
    config = TopicConfig.resolve(
        {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    )
    assert (config.compact, config.delete, config.append_time) == (True, True, True)
    config = TopicConfig.resolve({"cleanup.policy": "compact"})
    assert (config.compact, config.delete) == (True, False)
    assert TopicConfig.resolve({"max.compaction.lag.ms": "100"}).segment_ms == 100
    levels = {"compression.type": "zstd", "compression.zstd.level": "9"}
    assert TopicConfig.resolve(levels).codec_level == 9
    assert TopicConfig.resolve({"compression.type": "snappy"}).codec_level is None


def test_defaults_of_the_broker_under_its_own_names() -> None:
    given = {
        "log.retention.hours": "2",
        "log.segment.bytes": "1000000",
        "num.partitions": "7",
        "message.max.bytes": "99",
    }
    assert broker_defaults(given) == {
        "retention.ms": "7200000", "segment.bytes": "1000000", "max.message.bytes": "99",
    }  # fmt: skip
    assert broker_defaults({"log.retention.hours": "2", "log.retention.ms": "5"}) == {"retention.ms": "5"}
    assert broker_defaults({"log.retention.minutes": "1"}) == {"retention.ms": "60000"}
    assert broker_defaults({"log.retention.hours": "-1"}) == {"retention.ms": "-1"}
    for bad in ({"log.retention.hours": "x"}, {"log.retention.ms": "x"}):
        with pytest.raises(InvalidConfig):
            broker_defaults(bad)


def test_broker_names_lead_to_one_setting_each() -> None:
    names = [setting.broker_name for setting in SETTINGS.values() if setting.broker_name]
    assert len(names) == len(set(names)) == len(BY_BROKER_NAME)
    assert {setting.kind for setting in SETTINGS.values()} == set(Kind)
