"""``python -m nws.sensing.stdio``: a sensor process that is asked over standard streams (`nws.sensing.dialogue`).

It ends with its standard input, or at the question ``leave``. It listens for the probes of others only
after the question ``listen``, with a secret, and probes only the hosts of ``probe`` questions: the asker
schedules the probes so that no two share a link. Standard library only, so that a host needs only this
package's files.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

from nws.measurement import Measurement
from nws.sensing.dialogue import MAX_LINE_BYTES, answer, bias_of, question
from nws.sensor import Sensor, SensorError
from nws.sensors.cpu import CpuSensor, ProbeCorrection
from nws.sensors.free_space import FreeMemorySensor
from nws.sensors.link_protocol import Endpoint
from nws.sensors.links import BandwidthSensor, ConnectTimeSensor, LatencySensor

READINGS: Final = 5
SPACING: Final = 0.01
MAX_ROUNDS: Final = 100
MAX_SECONDS: Final = 30.0
MAX_BYTES: Final = 1 << 26
PROBES: Final = 3
"""Probes of a host without a known bias. A probe that agrees with the run queue ends them."""


class StdioSensor:
    """Answers questions, one after the other.

    Parameters
    ----------
    source, sink
        Where questions come from and answers go.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self, source: BinaryIO, sink: BinaryIO, clock: Callable[[], float] = time.time
    ) -> None:
        self._source = source
        self._sink = sink
        self._clock = clock
        self._endpoint: Endpoint | None = None

    def run(self) -> None:
        """Answer until the questions end, a question is `leave`, or one is too long."""
        self._send(answer(0, self._clock()))
        verbs = {"sense": self._sense, "listen": self._listen, "probe": self._probe}
        try:
            while (line := self._source.readline(MAX_LINE_BYTES)).endswith(b"\n"):
                number = 0
                try:
                    asked = question(line)
                    number = asked["id"]
                    if asked["do"] == "leave":
                        self._send(answer(number, self._clock()))
                        return
                    self._send(verbs[asked["do"]](number, asked))
                except (
                    KeyError,
                    TypeError,
                    ValueError,
                    ArithmeticError,
                    OSError,
                    SensorError,
                ) as error:
                    reason = f"{type(error).__name__}: {error}"
                    self._send(answer(number, self._clock(), failures=[reason]))
        finally:
            if self._endpoint is not None:
                self._endpoint.close()

    def _send(self, line: bytes) -> None:
        self._sink.write(line)
        self._sink.flush()

    def _sense(self, number: int, asked: dict[str, Any]) -> bytes:
        """Measure this host; probe its CPUs first if the question has no bias."""
        host, rounds = str(asked["host"]), min(int(asked["rounds"]), MAX_ROUNDS)
        bias = bias_of(asked)
        known = None if bias is None else ProbeCorrection(bias, self._clock())
        cpu = CpuSensor(
            host,
            readings=READINGS,
            spacing=SPACING,
            probes=PROBES,
            correction=known,
            clock=self._clock,
        )
        sensors: list[Sensor] = [cpu, FreeMemorySensor(host)]
        return self._measured(number, sensors * rounds)

    def _listen(self, number: int, asked: dict[str, Any]) -> bytes:
        """Open the endpoint for the probes of others."""
        if self._endpoint is not None:
            self._endpoint.close()
        self._endpoint = Endpoint(str(asked["secret"]), (str(asked["address"]), 0))
        return answer(number, self._clock(), listening=self._endpoint.address)

    def _probe(self, number: int, asked: dict[str, Any]) -> bytes:
        """Measure the link to a peer: connect time, latency and, where asked, bandwidth."""
        host, peer, secret = str(asked["host"]), str(asked["peer"]), str(asked["secret"])
        place = (str(asked["address"][0]), int(asked["address"][1]))
        seconds = min(float(asked["seconds"]), MAX_SECONDS)
        sensors: list[Sensor] = [
            ConnectTimeSensor(host, peer, place, deadline=seconds),
            LatencySensor(host, peer, place, secret, deadline=seconds),
        ]
        if asked["wide"]:
            most = min(int(asked.get("most_bytes", MAX_BYTES)), MAX_BYTES)
            sensors.append(
                BandwidthSensor(host, peer, place, secret, deadline=seconds, most_bytes=most)
            )
        return self._measured(number, sensors)

    def _measured(self, number: int, sensors: Iterable[Sensor]) -> bytes:
        measurements: list[Measurement] = []
        failures: list[str] = []
        remarks: dict[str, None] = {}
        bias: float | None = None
        for sensor in sensors:
            try:
                measurements += sensor.measure()
            except SensorError as error:
                failures.append(f"{sensor.series[0]}: {error}")
            else:
                if isinstance(sensor, CpuSensor):
                    remarks.update(dict.fromkeys(sensor.remarks))
                    bias = sensor.correction.bias if sensor.correction else bias
        return answer(
            number, self._clock(), measurements, failures, remarks=list(remarks), bias=bias
        )


def main() -> int:
    """Answer questions until standard input ends."""
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        StdioSensor(sys.stdin.buffer, sys.stdout.buffer).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
