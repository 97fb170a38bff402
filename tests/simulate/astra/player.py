"""A small player of Chakra traces: what ASTRA-sim's analytical binaries do, written anew from what was measured.

Stands in for the binary where there is none (same options, same lines) and shares no code with hippo: it reads the
``.et`` bytes by itself. Rules, each measured on the real one:

* of a rank's nodes that may start, the lowest number does; one COMP at a time; one SEND until it has arrived; a RECV
  takes no place and ends when the message is there;
* a message is known by tag, source, destination and size; one that never comes leaves its rank unfinished, exit code 0;
* one dimension: a link per pair, first come first served, free again after ``size / bandwidth``; several dimensions: no
  contention, and the first dimension in which the two ranks differ is what the message is charged for;
* whole nanoseconds, cut off; GiB per second.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path

COMP, SEND, RECV = 4, 5, 6


def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        else:
            value, at = varint(data, at)
            yield key >> 3, value


def packed(data):
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def nodes(data):
    """Number to node of one trace; the first message is about the file."""
    size, at = varint(data, 0)
    found, at = {}, at + size
    while at < len(data):
        size, at = varint(data, at)
        node = {"deps": set(), "name": ""}
        for field, value in fields(data[at : at + size]):
            if field in (4, 5):
                node["deps"] |= set(packed(value))
            elif field == 10:
                attribute = dict(fields(value))
                name = attribute.pop(1).decode()
                node[name] = next(iter(attribute.values()))
            else:
                node[{1: "id", 2: "name", 3: "type", 7: "micros"}[field]] = value
        found[node["id"]] = node
        at += size
    return found


class Network:
    """Yaml as our own files and the facts' have it: ``key: [ a, b ]``."""

    def __init__(self, text):
        rows = (line.split("#")[0].split(":") for line in text.splitlines() if ":" in line)
        table = {key.strip(): [part.strip() for part in value.strip(" []").split(",")] for key, value in rows}
        self.shape = [int(each) for each in table["npus_count"]]
        self.bytes_per_ns = [float(each) * 2**30 / 1e9 for each in table["bandwidth"]]
        self.latency = [float(each) for each in table["latency"]]
        assert set(table["topology"]) == {"FullyConnected"}, "no other is needed"
        assert min(self.shape) >= 2
        self.free = defaultdict(int)

    def ranks(self):
        total = 1
        for size in self.shape:
            total *= size
        return total

    def arrival(self, now, source, destination, size):
        dimension = 0
        if len(self.shape) > 1:
            one, two = source, destination
            while one % self.shape[dimension] == two % self.shape[dimension]:
                one, two, dimension = one // self.shape[dimension], two // self.shape[dimension], dimension + 1
        on_link, latency = size / self.bytes_per_ns[dimension], self.latency[dimension]
        if len(self.shape) > 1:
            return now + int(latency + on_link)
        start = max(now, self.free[source, destination])
        self.free[source, destination] = start + int(on_link)
        return start + int(latency + on_link)


class Player:
    def __init__(self, traces, network, system, log):
        self.traces, self.network, self.system, self.log = traces, network, system, log
        self.events, self.order = [], count()
        self.left = [{number: set(node["deps"]) for number, node in trace.items()} for trace in traces]
        self.children = [defaultdict(list) for _ in traces]
        for rank, trace in enumerate(traces):
            for number, node in trace.items():
                for other in node["deps"]:
                    self.children[rank][other].append(number)
        self.ready = [{n for n, deps in left.items() if not deps} for left in self.left]
        self.busy = [{COMP: False, SEND: False} for _ in traces]
        self.posted, self.come = defaultdict(list), defaultdict(list)
        self.finished = {}

    def later(self, when, action, *about):
        heapq.heappush(self.events, (when, next(self.order), action, about))

    def run(self):
        for rank in range(len(self.traces)):
            self.issue(rank, 0)
        while self.events:
            now, _, action, about = heapq.heappop(self.events)
            action(now, *about)

    def issue(self, rank, now):
        for number in sorted(self.ready[rank]):
            node = self.traces[rank][number]
            if self.busy[rank].get(node["type"]):
                continue
            self.ready[rank].discard(number)
            self.say("issue", rank, node, now)
            if node["type"] == COMP:
                self.busy[rank][COMP] = True
                self.later(now + self.length(node), self.done, rank, number)
            elif node["type"] == SEND:
                self.busy[rank][SEND] = True
                to, size = node["comm_dst"], node["comm_size"]
                when = self.network.arrival(now, rank, to, size)
                self.later(when, self.arrive, rank, number, (node["comm_tag"], rank, to, size))
            else:
                key = (node["comm_tag"], node["comm_src"], rank, node["comm_size"])
                if self.come[key]:
                    self.come[key].pop(0)
                    self.later(now, self.done, rank, number)
                else:
                    self.posted[key].append(number)

    def length(self, node):
        if self.system.get("roofline-enabled"):
            return int(node["num_ops"] / (self.system["peak-perf"] * 1e12) * 1e9)
        return node.get("micros", 0) * 1000 or 1

    def arrive(self, now, rank, number, key):
        self.done(now, rank, number)
        if self.posted[key]:
            self.done(now, key[2], self.posted[key].pop(0))
        else:
            self.come[key].append(now)

    def done(self, now, rank, number):
        node = self.traces[rank][number]
        self.say("callback", rank, node, now)
        if node["type"] in self.busy[rank]:
            self.busy[rank][node["type"]] = False
        del self.left[rank][number]
        for child in self.children[rank][number]:
            self.left[rank][child].discard(number)
            if not self.left[rank][child]:
                self.ready[rank].add(child)
        self.issue(rank, now)
        if not self.left[rank]:
            self.finished[rank] = now

    def say(self, what, rank, node, now):
        self.log.append(
            f"[a time] [debug] {what},sys->id={rank}, tick={now}, node->id={node['id']}, "
            f"node->name={node['name']}, node->type={node['type']}"
        )


def main(arguments):
    given = dict(word.removeprefix("--").split("=", 1) for word in arguments)
    network = Network(Path(given["network-configuration"]).read_text())
    system = json.loads(Path(given["system-configuration"]).read_text())
    prefix = given["workload-configuration"]
    traces = [nodes(Path(f"{prefix}.{rank}.et").read_bytes()) for rank in range(network.ranks())]
    player = Player(traces, network, system, [])
    player.run()
    folder = Path(given["logging-folder"])
    folder.mkdir(exist_ok=True)
    if system.get("trace-enabled"):
        half = len(player.log) // 2  # a log that grew: the older part is in a file of its own
        (folder / "log.1.log").write_text("\n".join(player.log[:half]) + "\n")
        (folder / "log.log").write_text("\n".join(player.log[half:]) + "\n")
    for rank, now in sorted(player.finished.items()):
        line = f"[a time] [workload] [info] sys[{rank}] finished, {now} cycles, exposed communication {now} cycles."
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
