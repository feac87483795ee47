"""Settings rise from headwater.toml over the environment to flags."""

from pathlib import Path

import pytest

from headwater.client.settings import Settings, load_settings
from headwater.errors import BadInput


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    (tmp_path / "headwater.toml").write_text(
        """
        bootstrap = ["k1:9092", "k2:9092"]
        data = "from-toml"
        store = "a key of another part"

        [client]
        "security.protocol" = "SSL"
        ssl.ca.location = "/etc/ca.pem"
        "socket.keepalive.enable" = true

        [broker]
        port = 9999
        """
    )
    return tmp_path


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings(environ={}, directory=tmp_path) == Settings("127.0.0.1:9092", Path(".headwater"))


def test_the_file_is_read(toml: Path) -> None:
    settings = load_settings(environ={}, directory=toml)
    assert settings.bootstrap == "k1:9092,k2:9092"
    assert settings.data == Path("from-toml")
    assert settings.properties == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/etc/ca.pem",
        "socket.keepalive.enable": "true",
    }
    assert settings.broker == {"port": 9999}


def test_the_environment_overrides_the_file(toml: Path, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("# secured\nsecurity.protocol=SASL_SSL\n\n! and\nsasl.username = me=you\n")
    environ = {
        "HEADWATER_BOOTSTRAP": "env:1",
        "HEADWATER_DATA": "from-env",
        "HEADWATER_CONFIG_FILE": str(properties),
    }
    settings = load_settings(environ=environ, directory=toml)
    assert (settings.bootstrap, settings.data) == ("env:1", Path("from-env"))
    assert settings.properties["security.protocol"] == "SASL_SSL"
    assert settings.properties["sasl.username"] == "me=you"
    assert settings.properties["ssl.ca.location"] == "/etc/ca.pem"


def test_flags_override_the_environment_and_the_file(toml: Path, tmp_path: Path) -> None:
    file = tmp_path / "flag.properties"
    file.write_text("security.protocol=PLAINTEXT\nbootstrap.servers=file:1\n")
    environ = {"HEADWATER_BOOTSTRAP": "env:1", "HEADWATER_DATA": "from-env"}
    settings = load_settings(
        bootstrap="flag:1",
        data=Path("from-flag"),
        config_file=file,
        properties=["security.protocol=SASL_PLAINTEXT"],
        environ=environ,
        directory=toml,
    )
    assert (settings.bootstrap, settings.data) == ("flag:1", Path("from-flag"))
    assert settings.properties["security.protocol"] == "SASL_PLAINTEXT"
    assert "bootstrap.servers" not in settings.properties


def test_a_config_file_given_as_a_flag_names_the_address_before_the_environment_does(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    environ = {"HEADWATER_BOOTSTRAP": "env:1"}
    assert load_settings(config_file=file, environ=environ, directory=tmp_path).bootstrap == "file:1"
    from_environment = load_settings(
        environ={**environ, "HEADWATER_CONFIG_FILE": str(file)}, directory=tmp_path
    )
    assert from_environment.bootstrap == "env:1"


def test_an_empty_variable_is_as_none(toml: Path) -> None:
    settings = load_settings(environ={"HEADWATER_BOOTSTRAP": "", "HEADWATER_DATA": ""}, directory=toml)
    assert (settings.bootstrap, settings.data) == ("k1:9092,k2:9092", Path("from-toml"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bootstrap = 9092", "'bootstrap' must be an address or a list of addresses"),
        ("data = []", "'data' must be a string"),
        ("client = 'x'", "'client' must be a table"),
        ("bootstrap = ", "headwater.toml: Invalid value"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "headwater.toml").write_text(text)
    with pytest.raises(BadInput, match=r"headwater\.toml") as raised:
        load_settings(environ={}, directory=tmp_path)
    assert complaint in str(raised.value)


def test_a_missing_config_file_and_a_pair_without_equals_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.properties: No such file"):
        load_settings(config_file=tmp_path / "missing.properties", environ={}, directory=tmp_path)
    with pytest.raises(BadInput, match="-X novalue: it is not of the form key=value"):
        load_settings(properties=["novalue"], environ={}, directory=tmp_path)
