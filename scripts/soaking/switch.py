"""The switch: rules, connections and ports that come and go while hosts send through it."""

import functools
import random
import shutil

import transfer
from world import Failed

HOSTS = {"left": "198.18.8.1", "right": "198.18.8.2"}
TARGET = 9000
# Number of rules that one change adds to the table of changing rules.
RULES = 400


class Switch:
    def __init__(self, world):
        self.world, self.account = world, world.account
        world.namespace("switch")
        for host, address in HOSTS.items():
            world.namespace(host)
            world.cable(f"switch:{host}", f"{host}:eth0")
            world.ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
        self.folder = world.work / "switch"
        self.rundir = self.folder / "run"
        self.rundir.mkdir(parents=True, mode=0o700)
        ports = [f"--port=br0:{host}=packet:{host}" for host in HOSTS]
        words = [world.weir, "switch", "run", "--rundir", self.rundir, "--bridge", "br0", *ports]
        self.service = world.service("switch", "switch", *words)
        self.service.said("control at")
        self.base = self.write("base", [
            "table=0,priority=1,arp,actions=normal",
            "table=0,priority=10,ip,ct_state=-trk,actions=ct(table=1,nat)",
            "table=1,priority=10,ct_state=+trk+est,actions=normal",
            "table=1,priority=9,ct_state=+trk+new,ip,in_port=left,"
            "actions=ct(commit,nat(src=198.18.8.100-198.18.8.120)),normal",
            "table=1,priority=9,ct_state=+trk+rel,actions=normal",
        ])
        self.call("replace-flows", "br0", self.base)
        for address in range(100, 121):
            # `left` also has the translated addresses, so that `left` answers ARP for them.
            world.ip("-n", "left", "address", "add", f"198.18.8.{address}/32", "dev", "eth0")
        for kind in (transfer.socket.SOCK_STREAM, transfer.socket.SOCK_DGRAM):
            transfer.serve("right", ("0.0.0.0", TARGET), kind)

    def start(self):
        spawn = self.world.spawn
        for number in range(2):
            spawn("switch transfer", self.transfer, 0.5 + number, "left")
        spawn("switch datagrams", self.datagrams, 0.3, "left")
        spawn("switch rules", self.rules, 2)
        spawn("switch ports", self.ports, 5)
        spawn("switch lists", self.lists, 10)

    def finish(self):
        pass

    def write(self, name, rules):
        place = self.folder / name
        place.write_text("".join(f"{rule}\n" for rule in rules))
        return place

    def call(self, *words):
        return self.world.command("switch", *words, "--rundir", self.rundir).stdout

    def transfer(self):
        # Binds to one address, because `left` has many addresses.
        size, source = int(2 ** random.uniform(0, 19)), (HOSTS["left"], 0)
        address = HOSTS["right"], TARGET
        transfer.checked(self.account, "switch",
                         functools.partial(transfer.stream, address, size, 0, source))

    def datagrams(self):
        """Sends flows of one datagram, each a new entry of the connection table."""
        def some():
            if not sum(transfer.datagrams((HOSTS["right"], TARGET), 1, 100) for _ in range(5)):
                raise Failed("all of five datagrams were lost")
        transfer.checked(self.account, "switch", some)

    def rules(self):
        def rule():
            address = f"203.{random.randrange(256)}.{random.randrange(256)}.0"
            mask = random.choice([16, 20, 24])
            fields = random.choice(["tcp", "udp", "ip", f"tcp,tp_dst={random.randrange(1, 65536)}"])
            port = random.choice(list(HOSTS))
            return (f"table=2,priority={random.randrange(1, 1000)},{fields},nw_dst={address}/{mask},"
                    f"actions=dec_ttl,output:{port}")
        self.call("add-flows", "br0", self.write("rules", [rule() for _ in range(RULES)]))
        # Replaces a rule in the path of the packets by an equal rule, so that the switch makes its
        # megaflows again.
        self.call("add-flow", "br0", "table=1,priority=10,ct_state=+trk+est,actions=normal")
        if random.random() < 0.3:
            whole = self.base.read_text() + "".join(f"{rule()}\n" for _ in range(RULES))
            self.call("replace-flows", "br0", self.write("whole", whole.splitlines()))
        else:
            self.call("del-flows", "br0", "table=2")
        self.account.count("switch rules added", RULES)

    def ports(self):
        """Adds a port without an interface, and a port whose interface disappears during use."""
        self.call("port", "add", "br0", "brief", "dummy")
        self.call("port", "del", "br0", "brief")
        self.world.ip("-n", "switch", "link", "add", "gone", "type", "veth", "peer", "name", "peer")
        for interface in ("gone", "peer"):
            self.world.ip("-n", "switch", "link", "set", interface, "up")
        self.call("port", "add", "br0", "gone", "packet:gone")
        self.world.ip("-n", "switch", "link", "del", "gone")
        self.call("port", "del", "br0", "gone")
        self.account.count("switch ports added and removed", 2)

    def lists(self):
        self.call("dump-flows", "br0")
        self.call("call", "dpctl/dump-conntrack")
        self.call("show")
        if shutil.which("ovs-ofctl"):
            self.world.run("ovs-ofctl", "dump-ports", f"unix:{self.rundir}/br0.mgmt")
        self.account.count("switch lists")
