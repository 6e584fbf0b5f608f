"""Functions of the programs that stand in for Open vSwitch's while its cases run against weir."""

import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
# autotest takes this exit status of a checked command as "skip this case".
SKIP = 77
# Kernels in namespaces send through real interfaces, and the switch has no dummy ports.
IS_SYSTEM = bool(os.environ.get("WEIR_OVS_SYSTEM"))


def note(fact):
    """Notes a fact about the running case, which scripts/ovs-tests reads."""
    record = os.environ.get("WEIR_OVS_RECORD")
    if record:
        case = os.environ.get("WEIR_OVS_CASE", "0")
        with open(os.path.join(record, case), "a", encoding="utf-8") as file:
            file.write(fact + "\n")


def not_asked(reason):
    """Skips the case, which needs a feature that weir does not have, by ending the program."""
    note("not-asked " + reason)
    print(f"not asked: {reason}", file=sys.stderr)
    sys.exit(SKIP)


def rundir():
    return os.environ.get("OVS_RUNDIR", os.getcwd())


def place(name):
    return os.path.join(rundir(), name)


def installed(program):
    """Returns the path of the installed program, not of its stand-in in this folder."""
    # Leave this folder out: a stand-in would start itself again and again.
    own = {HERE, os.path.realpath(os.environ.get("WEIR_OVS_BIN", HERE))}
    folders = [f for f in os.environ["PATH"].split(os.pathsep) if os.path.realpath(f) not in own]
    found = shutil.which(program, path=os.pathsep.join(folders))
    if not found:
        sys.exit(f"{program}: not found; install Debian's openvswitch-common")
    return found


def control(*arguments):
    """Calls a command of the running switch. Returns its status, output and errors."""
    program = [installed("ovs-appctl"), "-t", place("weir-switch.ctl"), *arguments]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def pid():
    """Returns the PID of the running switch, or None. The command line distinguishes the switch
    from a later process with the same PID."""
    try:
        with open(place("ovs-vswitchd.pid"), encoding="utf-8") as file:
            number = int(file.read())
        with open(f"/proc/{number}/cmdline", encoding="utf-8") as file:
            return number if database() in file.read().split("\0") else None
    except (OSError, ValueError):
        return None


def database():
    return f"unix:{place('db.sock')}"


def start():
    """Starts the switch behind the case's database, and waits until it answers."""
    note("started")
    program = [os.environ.get("WEIR", "weir"), "switch", "run", "--rundir", rundir(),
               "--ovsdb", database()]
    if not IS_SYSTEM:
        program.append("--enable-dummy")
    with open(place("ovs-vswitchd.log"), "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"weir switch ended at once, with status {process.returncode}")
        if os.path.exists(place("weir-switch.ctl")) and control("version")[0] == 0:
            return
        time.sleep(0.02)
    sys.exit("weir switch does not answer")


def stop():
    """Ends the switch. Returns whether it ended by itself when asked."""
    number = pid()
    if number is None:
        return True
    control("exit")
    for _ in range(200):
        if pid() is None:
            return True
        time.sleep(0.05)
    os.kill(number, signal.SIGKILL)
    return False
