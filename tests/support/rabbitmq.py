"""A private RabbitMQ node: own ports, directories, name, cookie and epmd; the machine's node is never touched."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping

from tests.support.install import ensure_rabbitmq
from tests.support.ports import free_ports
from tests.support.reaper import reaper

_HELLO = b"AMQP\x00\x00\x09\x01"
_ADVANCED = "[{{rabbit, [{{channel_tick_interval, {channel_tick_interval_ms}}}]}}].\n"


class RabbitNode:
    """One RabbitMQ server.

    `consumer_timeout_ms` and `channel_tick_interval_ms` shorten RabbitMQ's own patience with unacked deliveries.
    `config` has further lines of rabbitmq.conf, by name.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        consumer_timeout_ms: int | None = None,
        channel_tick_interval_ms: int = 60_000,
        start_within_seconds: float = 60.0,
    ) -> None:
        self.programs = ensure_rabbitmq()
        self.port, self._distribution_port, self._epmd_port, ctl_port = free_ports(4)
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._start_within_seconds = start_within_seconds
        self.directory = reaper().directory("rabbitmq")
        self._environment = self._make_environment(ctl_port)
        self._node: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        lines = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "num_acceptors.tcp": "2",
            "disk_free_limit.absolute": "50MB",
            **({"consumer_timeout": str(consumer_timeout_ms)} if consumer_timeout_ms is not None else {}),
            **(config or {}),
        }
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.directory / "rabbitmq.conf").write_text(text)
        advanced = _ADVANCED.format(channel_tick_interval_ms=channel_tick_interval_ms)
        (self.directory / "advanced.config").write_text(advanced)
        (self.directory / "enabled_plugins").write_text("[].\n")
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)

    @property
    def pid(self) -> int | None:
        """Return the process id of the node, or None when it does not run."""
        return self._node.pid if self._node is not None and self._node.poll() is None else None

    @property
    def epmd_pid(self) -> int | None:
        """Return the process id of the node's own port mapper, or None before the first start."""
        return self._epmd.pid if self._epmd is not None else None

    def _has_ended(self) -> bool:
        return self.pid is None

    async def start(self) -> None:
        """Start the node and return when it answers a client; one that runs is left alone."""
        if self.pid is not None:
            return
        if self._epmd is None:
            self._epmd = self._spawn(["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"])
        self._node = self._spawn([self._program("rabbitmq-server")])
        try:
            async with asyncio.timeout(self._start_within_seconds):
                while not await self._answers():
                    assert not self._has_ended(), f"RabbitMQ ended while starting:\n{self.log_tail()}"
                    await asyncio.sleep(0.02)
        except TimeoutError:
            text = f"RabbitMQ did not answer within {self._start_within_seconds:g} s:\n{self.log_tail()}"
            raise AssertionError(text) from None

    async def stop(self) -> None:
        """Stop the node in good order: queues are flushed, clients get a close."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill the node as a crash would."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Stop in good order and start."""
        await self.stop()
        await self.start()

    async def wipe(self) -> None:
        """Kill the node and start it with nothing: no queues, no messages, no exchanges."""
        await self.kill()
        shutil.rmtree(self.directory / "mnesia", ignore_errors=True)
        await self.start()

    async def close(self) -> None:
        """Kill everything and remove the directories."""
        await self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            await asyncio.to_thread(self._epmd.wait)
            reaper().forget(self._epmd.pid)
            self._epmd = None
        shutil.rmtree(self.directory, ignore_errors=True)

    async def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl against this node and return its output."""
        process = await asyncio.create_subprocess_exec(
            self._program("rabbitmqctl"),
            *arguments,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode(errors="replace")
        assert process.returncode == 0, f"rabbitmqctl {' '.join(arguments)} failed:\n{output}"
        return output

    async def raise_memory_alarm(self) -> None:
        """Block every publisher, as a node does that is short of memory."""
        await self.ctl("set_vm_memory_high_watermark", "0")

    async def clear_memory_alarm(self) -> None:
        """Let the publishers go on."""
        await self.ctl("set_vm_memory_high_watermark", "0.4")

    async def close_all_connections(self, reason: str = "closed by a test") -> None:
        """Close every client connection from the broker's side."""
        await self.ctl("close_all_connections", reason)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the node's log and of what it printed."""
        texts = [path.read_text(errors="replace") for path in sorted((self.directory / "log").glob("*"))]
        return "\n".join("\n".join(texts).splitlines()[-lines:])

    async def _answers(self) -> bool:
        """Return whether the broker greets an AMQP client, which it does only when it is ready to serve."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(_HELLO)
            return (await reader.read(1)) == b"\x01"
        except OSError:
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _end(self, number: signal.Signals) -> None:
        if self._node is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._node.send_signal(number)
        try:
            await asyncio.to_thread(self._node.wait, 30.0)
        finally:
            # The helpers of the Erlang machine are in its group; they end with it, or now.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._node.pid, signal.SIGKILL)
        reaper().forget(self._node.pid)
        self._node = None

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        (self.directory / "log").mkdir(exist_ok=True)
        with (self.directory / "log" / "output").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper().watch(process.pid)
        return process

    def _program(self, name: str) -> str:
        return str(self.programs / name)

    def _make_environment(self, ctl_port: int) -> dict[str, str]:
        at = self.directory
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(at),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"despacho-test-{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CTL_DIST_PORT_MIN": str(ctl_port),
            "RABBITMQ_CTL_DIST_PORT_MAX": str(ctl_port + 20),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(at / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(at / "generated"),
            "RABBITMQ_MNESIA_BASE": str(at / "mnesia"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            # The start script replaces itself with the Erlang machine only here; else a signal meets a shell.
            "RUNNING_UNDER_SYSTEMD": "1",
        }
