"""The sensors.

1. `CpuSensor`: the share of the CPUs that a new and a running process get, from the run queue and a probe.
2. `FreeMemorySensor`: the memory that is available to a new process.
3. `FreeDiskSensor`: the free bytes of a file system.
4. `LatencySensor` and `BandwidthSensor`: one link, against an
   `nws.sensors.link_protocol.Endpoint` at its far end;
   `ConnectTimeSensor`: the same link, against anything that listens.
5. `ReplaySensor`: recorded or invented measurements: the public fake.

They do not import each other. All keep the contract of `nws.sensor`. `nws` exports them and loads each at its
first use.
"""
