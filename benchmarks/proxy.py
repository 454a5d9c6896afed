"""Apache's proxy before an Apache broker, and the gRPC client of PyPI that needs it."""

import json
import subprocess
import sys
from pathlib import Path

from contenders import Contender
from interop import apache
from interop.apache import Server
from interop.releases import APACHE_PROXY, CACHE_FOLDER

GRPC_CLIENT = "rocketmq-python-client"
READY = "startup successfully"
PROXY_HEAP = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC")
INSTALL_S_MAX = 600.0


def start_proxy(folder: Path, broker: Contender) -> Server:
    """Start a proxy in cluster mode; it answers when this returns."""
    folder.mkdir(parents=True)
    port = apache.free_port()
    config = folder / "rmq-proxy.json"
    config.write_text(
        json.dumps(
            {
                "rocketMQClusterName": "DefaultCluster",
                "proxyMode": "CLUSTER",
                "namesrvAddr": broker.name_server,
                "grpcServerPort": port,
                "remotingListenPort": apache.free_port(),
                "localServeAddr": apache.LOOPBACK,
            }
        ),
        encoding="ascii",
    )
    command = [
        "java", *PROXY_HEAP, *apache.OPEN_MODULES, f"-Duser.home={folder}",
        f"-Drocketmq.home.dir={folder}", f"-Dcom.rocketmq.proxy.configPath={config}",
        "-Drmq.logback.configurationFile=rmq.proxy.logback.xml", "-cp",
        f"{APACHE_PROXY.jars()}/*", "org.apache.rocketmq.proxy.ProxyStartup",
        "-n", broker.name_server, "-pm", "cluster", "-pc", str(config),
    ]  # fmt: skip
    output = folder / "proxy.log"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    server = Server("proxy", f"{apache.LOOPBACK}:{port}", process, output)
    server.wait_for(READY)
    return server


def grpc_python() -> Path:
    """An interpreter with the gRPC client, in an environment of its own; made by the first call."""
    folder = CACHE_FOLDER / "grpc-client"
    python, stamp = folder / "bin" / "python", folder / ".complete"
    if not stamp.exists():
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(python), "-m", "pip", "install", "-q", GRPC_CLIENT],
        ):
            subprocess.run(command, timeout=INSTALL_S_MAX, check=True)
        stamp.touch()
    return python
