"""The filter of system calls, run step by step as the kernel would, for each processor."""

import errno
import socket
from collections.abc import Sequence

import pytest

from remit_cli.processes.sandbox import BpfInstruction, program

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
NEWUSER, THREAD = 0x10000000, 0x3D0F00


def verdict(steps: Sequence[BpfInstruction], arch: int, number: int, argument: int = 0) -> int:
    """Return what a filter says of a system call with that first argument."""
    data = {0: number, 4: arch, 16: argument}
    at = held = 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                held = data[operand]
            case 0x15:
                at += yes if held == operand else no
            case 0x35:
                at += yes if held >= operand else no
            case 0x45:
                at += yes if held & operand else no
            case _:
                assert code == 0x06
                return operand


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize(
    ("machine", "read", "chmod", "truncate", "clone", "sock", "socketpair"),
    [("x86_64", 0, 90, 76, 56, 41, 53), ("aarch64", 63, 53, 45, 220, 198, 199)],
)
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_each_call_is_judged_by_its_number_and_what_it_asks_for(
    *,
    machine: str,
    read: int,
    chmod: int,
    truncate: int,
    clone: int,
    sock: int,
    socketpair: int,
    network: bool,
    cut: bool,
) -> None:
    steps, arch = program(machine, network=network, truncate=cut), ARCH[machine]
    assert verdict(steps, arch, read) == ALLOW
    assert verdict(steps, arch, chmod) == refused(errno.EPERM)
    assert verdict(steps, arch, truncate) == (refused(errno.EPERM) if cut else ALLOW)
    assert verdict(steps, arch, clone, THREAD) == ALLOW
    assert verdict(steps, arch, clone, THREAD | NEWUSER) == refused(errno.EPERM)
    assert verdict(steps, arch, socketpair, socket.AF_UNIX) == ALLOW
    for domain in (socket.AF_INET, socket.AF_INET6):
        assert verdict(steps, arch, sock, domain) == (ALLOW if network else refused(errno.EACCES))
    for domain in (socket.AF_UNIX, 16, 17, 40):  # netlink, packets, virtual machines
        assert verdict(steps, arch, sock, domain) == refused(errno.EACCES)
    for number in (425, 426, 427, 435):
        assert verdict(steps, arch, number) == refused(errno.ENOSYS)


@pytest.mark.parametrize("machine", ARCH)
def test_programs_of_another_processor_are_ended(machine: str) -> None:
    steps = program(machine, network=True, truncate=False)
    for other in (0x40000003, 0x40000028, *(each for name, each in ARCH.items() if name != machine)):
        assert verdict(steps, other, 1) == KILL


def test_the_second_set_of_numbers_of_x86_64_is_no_way_around() -> None:
    steps = program("x86_64", network=False, truncate=False)
    assert verdict(steps, ARCH["x86_64"], 0x40000000 | 41, socket.AF_INET) == refused(errno.ENOSYS)
