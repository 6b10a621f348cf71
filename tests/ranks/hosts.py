"""Test hosts on one machine: each has its own network, name, process ids and mounts, and a cable to one switch.

    with Hosts(2) as hosts:
        run = hosts[1].start(["shale", ...], MASTER_ADDR=hosts[0].address)

Hosts and switch are anonymous namespaces, held by one process each, and cables are made inside them: nothing of the
machine's own network changes, names cannot collide, and all of it, with every process on it, is gone when those
processes end, which the kernel sees to even if the test is killed. Needs root or user namespaces.
"""
import json
import subprocess
import sys

SKIPPED = 77  # the exit code that ctest takes for "skipped"
NOWHERE = "02:00:00:00:ff:ff"  # the link address of nobody

HOLD = """
import signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as the first process here it inherits orphans
if sys.argv[1]: socket.sethostname(sys.argv[1])
print("ready", flush=True)
while True: signal.pause()
"""


class Forbidden(Exception):
    """This machine does not let us make namespaces; says why."""


class Space:
    """Namespaces and the process that holds them, the first of their process ids."""

    def __init__(self, name, flags, enter=()):
        command = ["setpriv", "--pdeathsig", "KILL", *enter, "unshare", *flags, "--net", "--pid", "--fork",
                   "--kill-child=KILL", sys.executable, "-c", HOLD, name]
        self.holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            reason = self.holder.communicate()[1].strip()
            raise Forbidden(f"network namespaces are forbidden here: {reason}")
        with open(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children") as f:
            self.pid = int(f.read())

    def close(self):
        self.holder.kill()
        self.holder.communicate()  # the pipes close when everything in here is gone


class Host:
    def __init__(self, hosts, number):
        self.hosts, self.number = hosts, number
        self.name, self.address = f"host{number}", f"10.77.0.{number + 1}"
        self.space = Space(self.name, ["--uts", "--mount"], hosts.inside())

    def command(self, words):
        return [*self.hosts.inside(self.space), "--uts", "--mount", "--pid", "--", *map(str, words)]

    def start(self, words, env, **options):
        """The program on this host. Its exit code is that of the program, 128 + n or -n for signal n."""
        return subprocess.Popen(self.command(words), env=env, stdin=subprocess.DEVNULL, text=True, **options)

    def own_disk(self, folder):
        """From now on this host has an empty folder of its own there."""
        subprocess.run(self.command(["mount", "-t", "tmpfs", "none", folder]), check=True)

    def ip(self, *lines):
        """Lines of the ip program, as of this host's administrator."""
        self.hosts.ip(self.space, *lines)

    def sent(self, device="eth0"):
        """Bytes that left through the cable since the start; "lo": those between processes of this host."""
        done = subprocess.run([*self.hosts.inside(self.space), "ip", "-j", "-s", "link", "show", "dev", device],
                              check=True, capture_output=True, text=True)
        return json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]

    def link(self, state):
        """"down": the cable is out, and the host knows; "up": in again."""
        self.ip(f"link set dev eth0 {state}")

    def lose_all_sent_to(self, *others):
        """Frames to these hosts are lost without a word, as behind a firewall; theirs still arrive."""
        self.ip(*(f"neigh replace {h.address} lladdr {NOWHERE} nud permanent dev eth0" for h in others))

    def leave_switch(self):
        """The switch drops all frames to and from this host; both ends of its cable stay up."""
        self.hosts.ip(self.hosts.switch, f"link set dev port{self.number} nomaster")


class Hosts:
    """`count` hosts 10.77.0.1, 10.77.0.2 ... on one switch. real_frames: no frame on the cable is bigger than the mtu;
    otherwise the kernel passes several as one, and the counters see one header for all of them."""

    def __init__(self, count, mtu=1500, real_frames=False):
        self.count, self.mtu, self.real_frames = count, mtu, real_frames
        self.spaces, self.hosts, self.switch, self.as_user = [], [], None, False

    def __enter__(self):
        try:
            self.switch = self.make_switch()
            self.spaces.append(self.switch)
            self.ip(self.switch, "link add dev switch type bridge", f"link set dev switch mtu {self.mtu}",
                    "link set dev switch addrgenmode none up")
            for number in range(self.count):
                host = Host(self, number)
                self.spaces.append(host.space)
                self.hosts.append(host)
                self.plug_in(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in reversed(self.spaces):
            space.close()

    def __getitem__(self, number):
        return self.hosts[number]

    def __iter__(self):
        return iter(self.hosts)

    def make_switch(self):
        try:
            return Space("", [])
        except Forbidden:
            self.as_user = True
            return Space("", ["--user", "--map-root-user"])

    def inside(self, space=None):
        """The start of a command line that enters the network of `space`; the user's namespace alone without one."""
        if space is None:
            return ["nsenter", "-t", str(self.switch.pid), "--user", "--preserve-credentials"] if self.as_user else []
        user = ["--user", "--preserve-credentials"] if self.as_user else []
        return ["nsenter", "-t", str(space.pid), "--net", *user]

    def ip(self, space, *lines):
        subprocess.run([*self.inside(space), "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)

    def plug_in(self, host):
        port = f"port{host.number}"
        frames = " gso_max_segs 1" if self.real_frames else ""
        # No IPv6 link addresses: the counters see no frames but the run's.
        self.ip(self.switch, f"link add dev {port} mtu {self.mtu} type veth peer name eth0 mtu {self.mtu} "
                f"netns {host.space.pid}", f"link set dev {port} master switch addrgenmode none up")
        self.ip(host.space, "link set dev lo up", f"link set dev eth0 addrgenmode none{frames} up",
                f"address add {host.address}/24 dev eth0")


def skip_if_forbidden():
    """Ends the test as skipped, saying why, where hosts cannot be made."""
    try:
        with Hosts(1):
            pass
    except Forbidden as error:
        print(f"skipped: {error}", flush=True)
        sys.exit(SKIPPED)
