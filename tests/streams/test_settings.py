"""Where an application runs: headwater.toml, then the environment, then flags."""

from pathlib import Path

import pytest

from headwater.errors import BadInput
from headwater.streams.settings import StreamSettings, load_stream_settings

TOML = """
bootstrap = ["k1:9092", "k2:9092"]
store = "postgresql://db/views"
jars = "/opt/jars"

[client]
"security.protocol" = "SSL"

[spark]
master = "spark://10.0.0.1:7077"
checkpoints = "s3a://bucket/checkpoints"
source = "connector"
[spark.settings]
"spark.executor.memory" = "4g"
spark.sql.shuffle.partitions = 16
"""


def load(directory: Path, **how: object) -> StreamSettings:
    return load_stream_settings(directory=directory, **{"environ": {}, **how})  # type: ignore[arg-type]


def test_without_anything_all_is_local_and_beside_the_application(tmp_path: Path) -> None:
    settings = load(tmp_path, application=Path("/srv/shop/app.py"))
    assert settings.is_local and settings.bootstrap == "127.0.0.1:9092" and settings.source == "python"
    assert settings.data == Path("/srv/shop/.headwater")
    assert settings.store == "sqlite:////srv/shop/.headwater/views.db"
    assert settings.checkpoints == "/srv/shop/.headwater/checkpoints"
    assert settings.jars is None


def test_the_file_says_it_all(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(TOML)
    settings = load(tmp_path)
    assert settings.bootstrap == "k1:9092,k2:9092"
    assert settings.store == "postgresql://db/views"
    assert (settings.master, settings.is_local) == ("spark://10.0.0.1:7077", False)
    assert settings.checkpoints == "s3a://bucket/checkpoints"
    assert (settings.source, settings.jars) == ("connector", Path("/opt/jars"))
    assert settings.properties["security.protocol"] == "SSL"
    assert settings.spark == {"spark.executor.memory": "4g", "spark.sql.shuffle.partitions": "16"}


def test_the_environment_is_stronger_and_flags_are_strongest(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(TOML)
    environ = {
        "HEADWATER_BOOTSTRAP": "e:1",
        "HEADWATER_STORE": "sqlite:///e.db",
        "HEADWATER_SPARK_MASTER": "local[3]",
        "HEADWATER_CHECKPOINTS": "/e",
        "HEADWATER_SOURCE": "python",
        "HEADWATER_JARS": "/e/jars",
        "HEADWATER_DATA": "/e/data",
    }
    settings = load(tmp_path, environ=environ, application=Path("/srv/app.py"))
    assert (settings.bootstrap, settings.store, settings.master) == ("e:1", "sqlite:///e.db", "local[3]")
    assert (settings.checkpoints, settings.source, settings.jars) == ("/e", "python", Path("/e/jars"))
    assert settings.data == Path("/e/data")
    flags = load(
        tmp_path,
        environ=environ,
        bootstrap="f:1",
        store="sqlite:///f.db",
        master="local[4]",
        data=Path("/f"),
        properties=["security.protocol=PLAINTEXT"],
    )
    assert (flags.bootstrap, flags.store, flags.master) == ("f:1", "sqlite:///f.db", "local[4]")
    assert flags.data == Path("/f")
    assert flags.properties["security.protocol"] == "PLAINTEXT"


def test_a_data_directory_that_is_named_lies_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(tmp_path, application=Path("/srv/app.py"), data=Path("here"))
    assert settings.data == tmp_path / "here"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spark = 1", "[spark] is not a table"),
        ("[spark]\nmaster = 7", "master is not a text"),
        ("store = []", "store is not a text"),
        ("[spark]\nsource = 'magic'", "there is no such source"),
        ("torn", "headwater.toml"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "headwater.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        load(tmp_path)
    assert why in str(refused.value)
