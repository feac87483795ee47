"""A real node of OpenSearch as a child process, from the jars on Maven Central.

A few lines of Java start the node with its HTTP server. What the distribution adds (security, the modules for ingest
and scripts) is not there.
"""

import http.client
import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import jars
from tests.support.packages import require
from tests.support.servers import HOST, ServerFailed, free_port

_READY_WITHIN = 90.0  # seconds; a busy machine

_NODE = """
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

public class OneNode {
  static class WithHttp extends Node {
    WithHttp(Settings settings) {
      super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "one"),
            List.of(Netty4Plugin.class), false);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Settings.Builder settings = Settings.builder().put("path.home", arguments[0])
      .put("http.port", arguments[1]).put("transport.port", arguments[2]);
    for (int index = 3; index < arguments.length; index += 2)
      settings.put(arguments[index], arguments[index + 1]);
    new WithHttp(settings.build()).start();
    Thread.sleep(Long.MAX_VALUE);
  }
}
"""

_SETTINGS = {
    "cluster.name": "tests",
    "node.name": "one",
    "network.host": HOST,
    "discovery.type": "single-node",
    "http.type": "netty4",
    "transport.type": "netty4",
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "node.processors": "2",
}


class OpenSearch:
    """One node. Kills and restarts keep port and data; leaving the block removes both."""

    def __init__(self) -> None:
        self.port = free_port()
        self._transport = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-opensearch-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None
        classes = self._directory / "classes"
        classpath = jars.opensearch_classpath()
        if not classes.exists():
            (self._directory / "OneNode.java").write_text(_NODE)
            (self._directory / "config").mkdir()
            compile_it = [require("javac"), "-cp", classpath, "-d", str(classes)]
            subprocess.run([*compile_it, str(self._directory / "OneNode.java")], check=True)
        options = [part for pair in _SETTINGS.items() for part in pair]
        java = [require("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        java += ["-Dlog4j2.disable.jmx=true", "-cp", f"{classpath}:{classes}", "OneNode"]
        command = [*java, str(self._directory), str(self.port), str(self._transport), *options]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + _READY_WITHIN
        while True:
            try:
                status, _ = self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
                if status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if self._process.poll() is not None or time.monotonic() > end:
                log_end = (self._directory / "log").read_text(errors="replace")[-2000:]
                self.kill()
                raise ServerFailed(f"OpenSearch did not start: {log_end}")
            time.sleep(0.1)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def documents(self, index: str) -> dict[str, Any]:
        """All documents of an index, by id."""
        self.ask("POST", f"/{index}/_refresh")
        _, found = self.ask("POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
