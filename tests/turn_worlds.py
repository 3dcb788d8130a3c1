"""Probe turns on a simulated network: joins, leaves, crashes, restarts of the service, late and lost answers.

One seed is one history. The sensors' clocks and the service's run at different rates. A sensor probes only
while its `HeldTurn` lasts, by its own clock; requests and answers may be late, doubled or lost.
"""

import heapq
import itertools
import random

from nws import HeldTurn, Turn, TurnTable, cliques_of

RATE_SKEW = 0.009
CLIENT_SECONDS = 10.0
MIN_PROBE_SECONDS = 0.1


class Sensor:
    """A sensor: its clock, and the number of its process."""

    def __init__(self, name, site, rate):
        self.name, self.site, self.rate = name, site, rate
        self.alive, self.life, self.registered_until = False, 0, -1.0

    def local(self, now):
        return 1000 + self.rate * now

    def true(self, local):
        return (local - 1000) / self.rate


class TurnWorld:
    """A service and its sensors.

    Parameters
    ----------
    faults
        Whether messages are late, doubled or lost, and sensors crash.
    make
        Makes the table of a service that starts.
    late
        A planted bug: sensors count their turn from the answer.

    Attributes
    ----------
    probes
        (start, stop, clique, hosts) of every probe that ran.
    """

    def __init__(
        self, seed, hosts=14, sites=2, period=60.0, faults=True, make=TurnTable, late=False
    ):
        self.random = random.Random(seed)
        self.now, self.period, self.faults, self.make, self.late = 0.0, period, faults, make, late
        self.queue, self.count = [], itertools.count()
        self.rate = 1 + self.skew()
        self.table, self.service_life = self.new_table(), 0
        self.sensors = {
            f"h{n:02d}": Sensor(f"h{n:02d}", f"s{n % sites}", 1 + self.skew())
            for n in range(hosts)
        }
        self.probes, self.turned, self.lost = [], [], 0
        for sensor in self.sensors.values():
            self.after(self.random.uniform(0, 2 * period), self.start, sensor)

    def skew(self):
        return self.random.uniform(-RATE_SKEW, RATE_SKEW)

    def new_table(self):
        names = (f"{n}" for n in itertools.count())
        return self.make(self.period, self.server_now(), lambda: next(names))

    def server_now(self):
        return 5000 + self.rate * self.now

    def after(self, seconds, act, *words):
        heapq.heappush(self.queue, (self.now + seconds, next(self.count), act, words))

    def run(self, until):
        while self.queue and self.queue[0][0] <= until:
            self.now, _, act, words = heapq.heappop(self.queue)
            act(*words)
        self.now = until

    # ---------------------------------------------------------------- what happens
    def start(self, sensor):
        sensor.alive, sensor.life = True, sensor.life + 1
        self.register(sensor, sensor.life)
        self.ask(sensor, sensor.life)
        if self.faults:
            self.after(self.random.expovariate(1 / (6 * self.period)), self.crash, sensor)

    def crash(self, sensor):
        """End the process, its probe with it; its registration stays until it runs out."""
        sensor.alive = False
        for probe in self.probes:
            if probe[2] == sensor.name and probe[1] > self.now:
                probe[1] = self.now
        if self.random.random() < 0.5:
            sensor.registered_until = self.now  # it left in peace
        self.after(self.random.expovariate(1 / self.period), self.start, sensor)

    def restart_service(self):
        self.service_life += 1
        self.table = self.new_table()

    def register(self, sensor, life):
        if sensor.alive and sensor.life == life:
            sensor.registered_until = self.now + 30
            self.after(10, self.register, sensor, life)

    def delay(self):
        slow = self.faults and self.random.random() < 0.1
        return self.random.uniform(0, 40) if slow else self.random.expovariate(50)

    def send(self, act, *words):
        copies = 1
        if self.faults:
            copies = self.random.choices((0, 1, 2), (10, 80, 10))[0]
            self.lost += not copies
        for _ in range(copies):
            self.after(self.delay(), act, *words)

    def ask(self, sensor, life):
        if not sensor.alive or sensor.life != life:
            return
        request = {"asked": sensor.local(self.now), "open": True}
        self.send(self.asked, sensor, life, request, self.service_life)
        self.after(CLIENT_SECONDS, self.give_up, sensor, life, request)

    def give_up(self, sensor, life, request):
        if request["open"]:
            request["open"] = False
            self.ask(sensor, life)

    def cliques(self):
        alive = {s.name: s.site for s in self.sensors.values() if s.registered_until > self.now}
        return cliques_of(alive)

    def asked(self, sensor, life, request, service_life):
        if service_life == self.service_life:
            answer = self.table.ask(sensor.name, self.cliques(), self.server_now())
            self.send(self.answered, sensor, life, request, answer)

    def answered(self, sensor, life, request, answer):
        if not sensor.alive or sensor.life != life or not request["open"]:
            return
        request["open"] = False
        if not isinstance(answer, Turn):
            self.after(answer / sensor.rate, self.ask, sensor, life)
            return
        asked = sensor.local(self.now) if self.late else request["asked"]
        held = HeldTurn.of(answer.id, answer.seconds, asked)
        probed, stop = [], self.now
        for peer in answer.peers:
            left = held.left(sensor.local(stop))
            if left < MIN_PROBE_SECONDS:
                break
            # A probe that hangs lasts as long as its time limit, which is what is left.
            seconds = left if self.random.random() < 0.1 else self.random.uniform(0, left / 2)
            begin, stop = stop, stop + seconds / sensor.rate
            self.probes.append([begin, stop, sensor.name, peer, answer.clique])
            probed.append(peer)
        self.turned.append((self.now, sensor.name, answer.clique))
        self.after(stop - self.now, self.done, sensor, life, answer, probed)

    def done(self, sensor, life, turn, probed):
        if sensor.alive and sensor.life == life:
            self.send(self.ended, turn, probed, self.service_life)
            self.ask(sensor, life)

    def ended(self, turn, probed, service_life):
        if service_life == self.service_life:
            self.table.end(turn.id, probed, self.server_now())

    # ---------------------------------------------------------------- what must hold
    def overlaps(self):
        """Return the pairs of probes that ran at once in one clique, or at one host."""
        running, found = [], []
        for probe in sorted(self.probes):
            begin, stop, host, peer, clique = probe
            running = [other for other in running if other[1] > begin + 1e-9]
            found += [
                (other, probe)
                for other in running
                if stop - begin > 1e-9 and (other[4] == clique or {host, peer} & {*other[2:4]})
            ]
            running.append(probe)
        return found
