"""The sensors.

1. `CpuSensor`: what a new and a running process get of the CPUs, from the run queue and a probe.
2. `FreeMemorySensor`: what a new process can have of the memory.
3. `FreeDiskSensor`: what can still be written to a file system.
4. `LatencySensor`, `UdpSensor` and `BandwidthSensor`: one link, against an
   `nws.sensors.link_protocol.Endpoint` at its far end;
   `ConnectTimeSensor`: the same link, against anything that listens.
5. `ReplaySensor`: measurements made elsewhere or made up: the public fake.

None of them knows another. All keep the contract of `nws.sensor`. They are to be had from `nws`, each loaded when
it is asked for.
"""
