"""Joining: ranks exchange through torch's store which of them share a node, and the name under which they meet."""

import fcntl
import ipaddress
import json
import os
import secrets
import socket
import struct

from .. import _native
from .._native import node

# The request of Linux for the address of an interface, from <linux/sockios.h>, and the offset of the address in the answer.
_SIOCGIFADDR, _ADDRESS_AT = 0x8915, 20


def machine():
    """Names the machine of this process by the boot of its kernel."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def join(store, rank, size, timeout):
    """Joins the ranks of a store, under a name that no other group has had."""
    # Counted per rank, so that a store that is used again has no old answers; and by size, as a group of fewer ranks counts fewer.
    time = store.add(f"earlybird/{size}/{rank}/joins", 1)

    def tell(what, mine):
        """Tells all ranks what this one says; returns what each says."""
        store.set(f"earlybird/{size}/{time}/{what}/{rank}", json.dumps(mine))
        return [json.loads(store.get(f"earlybird/{size}/{time}/{what}/{other}")) for other in range(size)]

    seconds = timeout.total_seconds() or None
    mine = {"node": node(), "machine": machine(), "pid": os.getpid(), "host": socket.gethostname(), "job": secrets.token_hex(16)}
    ranks = tell("node", mine)
    job = ranks[0]["job"]
    if all(other["node"] == mine["node"] for other in ranks):
        return _native.Communicator(f"torch-{job}", rank, size, timeout=seconds)
    listener = _native.Listener(_address(tell("host", _address([]))))
    for other, address in zip(ranks, tell("address", listener.address)):
        other["address"] = address
    return _native.Communicator.across_nodes(f"torch-{job}", rank, ranks, listener, bytes.fromhex(job), timeout=seconds)


def _address(others):
    """The address at which other hosts reach this one: that of the interface which GLOO_SOCKET_IFNAME names, or which leads to
    MASTER_ADDR. Where that is the loopback, as on a host whose name is listed so, the one that leads to another rank's address."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface:
        return _address_of_interface(interface)
    mine = _address_towards(os.environ.get("MASTER_ADDR") or socket.gethostname())
    elsewhere = [other for other in others if not ipaddress.ip_address(other).is_loopback]
    return _address_towards(elsewhere[0]) if elsewhere and ipaddress.ip_address(mine).is_loopback else mine


def _address_of_interface(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
        answer = fcntl.ioctl(some, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + 4])


def _address_towards(host):
    """The own address on the way to a host; nothing is sent."""
    family, kind, *_, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as some:
        some.connect(address)
        return some.getsockname()[0]
