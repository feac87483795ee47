"""Who may ask: loopback without a token, whoever has the token else; and what is refused at the start."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.errors import BadInput
from headwater.serve.security import Access, host_name, is_loopback
from headwater.serve.settings import ServeSettings, load_serve_settings
from headwater.serve.sharing import origins_of
from tests.serve.served import running, serving_of

TOKEN = "a token that nobody guesses".replace(" ", "-")


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    data: Path = tmp_path_factory.mktemp("open")
    serving = serving_of(f"sqlite:///{data}/views.db", data)
    with serving.store, running(serving) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    data: Path = tmp_path_factory.mktemp("guarded")
    serving = serving_of(f"sqlite:///{data}/views.db", data)
    with serving.store, running(serving, TOKEN) as client:
        yield client


# -- without a token -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "shop.localhost"]
)
def test_this_machine_by_its_names(open_client: httpx.Client, host: str) -> None:
    assert open_client.get("/views/words/w5", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "user@localhost", "a b"],
)
@pytest.mark.parametrize("path", ["/views/words/w5", "/views", "/health", "/nothing"])
def test_a_name_that_was_made_to_point_here_is_refused(
    open_client: httpx.Client, host: str, path: str
) -> None:
    answer = open_client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert "another host" in answer.json()["cause"]


def test_a_request_without_a_host_is_refused(open_client: httpx.Client) -> None:
    port = open_client.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET /views HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://["]
)
def test_a_page_from_elsewhere_cannot_write(open_client: httpx.Client, origin: str) -> None:
    headers = {"origin": origin, "content-type": "application/json"}
    answer = open_client.post("/topics/lines", headers=headers, content=b'{"line":"a"}')
    assert answer.status_code == 403
    assert "comes from a page" in answer.json()["cause"]


def test_a_page_of_this_machine_may_write(open_client: httpx.Client) -> None:
    answer = open_client.post("/nothing", headers={"origin": "http://localhost:3000"})
    assert answer.status_code == 404


def test_a_page_of_this_machine_may_read_and_ask_first(open_client: httpx.Client) -> None:
    page = {"origin": "http://localhost:3000"}
    for path, status in (("/views/words/w5", 200), ("/views", 200), ("/views/nothing", 404)):
        answer = open_client.get(path, headers=page)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert answer.headers["vary"] == "origin"
        assert "Headwater-Last-Change" in answer.headers["access-control-expose-headers"]
    asked = {
        **page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    answer = open_client.options("/topics/lines", headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Content-Type" in answer.headers["access-control-allow-headers"]
    assert open_client.options("/topics/lines").status_code == 405
    assert open_client.options("/topics/lines", headers={**asked, "host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "file://"]
)
def test_a_page_from_elsewhere_cannot_read(open_client: httpx.Client, origin: str) -> None:
    answer = open_client.get("/views/words/w5", headers={"origin": origin})
    assert "access-control-allow-origin" not in answer.headers
    asked = {"origin": origin, "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in open_client.options("/topics/lines", headers=asked).headers


# -- with a token ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/views", "/views/words/w5", "/metrics", "/openapi.json", "/", "/nothing"])
@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_nothing_is_said_without_the_token(guarded: httpx.Client, path: str, header: str | None) -> None:
    answer = guarded.get(path, headers={} if header is None else {"authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_token_opens(guarded: httpx.Client) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/views/words/w5", headers=headers).status_code == 200
    assert guarded.get("/views", headers={**headers, "host": "shop.example"}).status_code == 200
    assert guarded.get("/views", headers={"authorization": f"bearer  {TOKEN}"}).status_code == 200
    assert guarded.get("/health").status_code == 200


def test_a_browser_signs_in_and_gets_a_cookie_without_the_token(guarded: httpx.Client) -> None:
    sent = guarded.get("/views", headers={"accept": "text/html"})
    assert (sent.status_code, sent.headers["location"]) == (303, "/login")
    assert "password" in guarded.get("/login").text
    refused = guarded.post("/login", data={"token": "wrong"})
    assert refused.status_code == 401 and "set-cookie" not in refused.headers
    answer = guarded.post("/login", data={"token": TOKEN})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    value = cookie.partition(";")[0]
    assert guarded.get("/views", headers={"cookie": f"other=1; {value}"}).status_code == 200
    assert guarded.get("/views", headers={"cookie": value[:-1] + "x"}).status_code == 401
    for odd in ('theme={"dark":true}', "grafana=a b", "name=Zürich", "x", "headwater=old", "a=;"):
        for given in (f"{odd}; {value}", f"{value};{odd}"):
            sent = {"cookie": given.encode()}
            assert guarded.get("/views", headers=sent).status_code == 200, f"beside {odd}"
    assert guarded.get("/views", headers={"cookie": value.replace("=", '="') + '"'}).status_code == 200
    assert guarded.get("/views", headers={"cookie": f"other{value}"}).status_code == 401
    guarded.cookies.clear()
    foreign = {"cookie": value, "origin": "https://evil.example"}
    assert guarded.post("/topics/lines", headers=foreign).status_code == 403


def test_pages_of_named_origins_may_read_with_the_token(tmp_path: Path) -> None:
    serving = serving_of(f"sqlite:///{tmp_path}/views.db", tmp_path)
    named, other = "https://app.example", "http://localhost:3000"
    with serving.store, running(serving, TOKEN, origins_of([f"{named}/"])) as client:
        asked = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
        answer = client.options("/views", headers={**asked, "origin": named})
        assert answer.status_code == 204 and "Authorization" in answer.headers["access-control-allow-headers"]
        assert client.options("/views", headers={**asked, "origin": other}).status_code == 401
        refused = client.get("/views", headers={"origin": named})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, named)
        token = {"authorization": f"Bearer {TOKEN}"}
        read = client.get("/views/words/w5", headers={**token, "origin": named})
        assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, named)
        read = client.get("/views/words/w5", headers={**token, "origin": other})
        assert "access-control-allow-origin" not in read.headers
        assert client.post("/nothing", headers={**token, "origin": named}).status_code == 404
        assert client.post("/nothing", headers={**token, "origin": other}).status_code == 403


def test_a_long_form_is_not_read_to_its_end(guarded: httpx.Client) -> None:
    assert guarded.post("/login", content=b"token=" + b"x" * 1_000_000).status_code == 401


def test_the_description_says_that_a_token_is_needed(guarded: httpx.Client) -> None:
    content = guarded.get("/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()
    assert content["security"] == [{"token": []}]
    assert "401" in content["paths"]["/views"]["get"]["responses"]


def test_a_websocket_without_the_token_is_refused(guarded: httpx.Client) -> None:
    upgrade = {
        "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    assert guarded.get("/ui/_nicegui_ws/socket.io/", headers=upgrade).status_code == 403


# -- what is refused at the start ------------------------------------------------------------------


def test_an_address_that_others_reach_needs_a_token_and_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    nowhere = {"environ": {}, "directory": tmp_path}
    for host in ("0.0.0.0", "::", "10.0.0.1", "shop.example"):
        with pytest.raises(BadInput, match=r"no token and no TLS.*--token-file.*--tls-cert"):
            load_serve_settings(listen=host, **nowhere)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="there is no TLS"):
            load_serve_settings(listen=host, token_file=token, **nowhere)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="there is no token"):
            load_serve_settings(listen=host, tls_cert=cert, tls_key=key, **nowhere)  # type: ignore[arg-type]
        settings = load_serve_settings(
            listen=host,
            token_file=token,
            tls_cert=cert,
            tls_key=key,
            **nowhere,  # type: ignore[arg-type]
        )
        assert (settings.token, settings.scheme) == (TOKEN, "https")
    for host in ("127.0.0.1", "::1", "localhost"):
        assert load_serve_settings(listen=host, **nowhere).token is None  # type: ignore[arg-type]


def test_settings_come_from_flags_then_the_environment_then_the_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-the-file-of-the-toml")
    (tmp_path / "other").write_text("from-the-file-of-the-flag")
    (tmp_path / "headwater.toml").write_text(
        f'[serve]\nport = 8181\ntoken_file = "{tmp_path}/token"\ndashboard = false\n'
        'origins = ["https://app.example"]\n'
    )
    found = load_serve_settings(environ={}, directory=tmp_path)
    assert (found.port, found.token, found.dashboard) == (8181, "from-the-file-of-the-toml", False)
    environ = {"HEADWATER_TOKEN": "from-the-environment"}
    assert load_serve_settings(environ=environ, directory=tmp_path).token == "from-the-environment"
    assert found.origins == {"https://app.example"}
    named = load_serve_settings(environ={}, directory=tmp_path, origins=["http://a:1"])
    assert named.origins == {"http://a:1"}
    flags = load_serve_settings(environ=environ, directory=tmp_path, port=0, token_file=tmp_path / "other")
    assert (flags.port, flags.token) == (0, "from-the-file-of-the-flag")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nprot = 1", "no 'prot'"),
        ("[serve]\nport = '1'", "must be of type int"),
        ("[serve]\nport = true", "must be of type int"),
        ("serve = 1", "is not a table"),
        ("[serve]\ntoken_file = '/nowhere/token'", "no such file"),
        ("[serve]\ntls_cert = 'cert.pem'", "go together"),
        ("[serve]\norigins = 'https://shop.example'", "must be of type list"),
        ("[serve]\norigins = ['*']", "is not SCHEME://HOST"),
    ],
)
def test_a_file_that_says_something_else(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "headwater.toml").write_text(text)
    with pytest.raises(BadInput, match=said):
        load_serve_settings(environ={}, directory=tmp_path)


def test_tokens_and_certificates_that_are_none(tmp_path: Path) -> None:
    token = tmp_path / "token"
    for text, said in (("", "one word"), ("a b", "one word"), ("short", "can be guessed")):
        token.write_text(text)
        with pytest.raises(BadInput, match=said):
            load_serve_settings(token_file=token, environ={}, directory=tmp_path)
    cert, key = certificate(tmp_path)
    with pytest.raises(BadInput, match="belong together"):
        load_serve_settings(tls_cert=key, tls_key=cert, environ={}, directory=tmp_path)
    with pytest.raises(BadInput, match="go together"):
        ServeSettings(tls_cert=cert).require_safe()


def test_what_is_loopback() -> None:
    assert not is_loopback("0.0.0.0") and not is_loopback("") and is_loopback("127.1.2.3")
    assert host_name("localhost:port") is None and host_name("[::1") is None
    assert not Access("token").accepts("other") and Access("token").accepts("token")
    assert not Access().accepts("")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that it signs itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key
